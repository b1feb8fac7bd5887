//! Endpoints from a file that is read again when its content changes.
//!
//! The content is compared, not the modification time: a rename over the file, a changed symlink (ConfigMap
//! volumes) and two writes within one clock tick are all seen. A file that cannot be used keeps the last good
//! set, with one log line per bad content.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use lmetric_api::{ConfigError, EndpointsFile};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::{Discovery, Endpoint, EndpointSet};

/// Between two looks at the file.
const PERIOD: Duration = Duration::from_millis(250);

/// Watches one file.
#[derive(Debug)]
pub struct FileDiscovery {
    path: PathBuf,
    /// What was read last: the content, or why there was none.
    last: Result<String, std::io::ErrorKind>,
    first: EndpointSet,
}

impl FileDiscovery {
    /// Reads the file once; a file that is bad at start is an error.
    pub fn open(path: &Path) -> Result<Self, ConfigError> {
        let text = std::fs::read_to_string(path).map_err(|error| ConfigError::unreadable(path, &error))?;
        let first = parse(&text, path)?;
        Ok(Self {
            path: path.to_owned(),
            last: Ok(text),
            first,
        })
    }

    /// The set that the file held when it was opened.
    pub fn first(&self) -> &EndpointSet {
        &self.first
    }

    /// The new set, if the content changed and is good.
    async fn look(&mut self) -> Option<EndpointSet> {
        let now = tokio::fs::read_to_string(&self.path)
            .await
            .map_err(|error| error.kind());
        if now == self.last {
            return None;
        }
        self.last = now;
        match &self.last {
            Ok(text) => match parse(text, &self.path) {
                Ok(set) => {
                    tracing::info!(endpoints = set.len(), "endpoints file changed");
                    return Some(set);
                }
                Err(error) => tracing::error!(%error, "endpoints file is bad; the last good endpoints stay"),
            },
            Err(problem) => tracing::error!(
                file = %self.path.display(),
                %problem,
                "endpoints file cannot be read; the last good endpoints stay"
            ),
        }
        None
    }
}

fn parse(text: &str, path: &Path) -> Result<EndpointSet, ConfigError> {
    let EndpointsFile { endpoints } = EndpointsFile::parse(text, path)?;
    Ok(endpoints.into_iter().map(Endpoint::from).collect())
}

impl Discovery for FileDiscovery {
    async fn run(mut self, sets: watch::Sender<Option<EndpointSet>>, token: CancellationToken) {
        sets.send_replace(Some(self.first.clone()));
        let mut period = tokio::time::interval(PERIOD);
        period.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                () = token.cancelled() => return,
                _ = period.tick() => {}
            }
            if let Some(set) = self.look().await {
                sets.send_replace(Some(set));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    const ONE: &str = "endpoints:\n- {address: \"127.0.1.1:8000\", model: m}\n";
    const TWO: &str =
        "endpoints:\n- {address: \"127.0.1.1:8000\", model: m}\n- {address: \"127.0.1.2:8000\", model: m}\n";

    fn watched(text: &str) -> (tempfile::TempDir, PathBuf, FileDiscovery) {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("endpoints.yaml");
        fs::write(&path, text).expect("writes");
        let discovery = FileDiscovery::open(&path).expect("a good file");
        (folder, path, discovery)
    }

    fn replace(path: &Path, text: &str) {
        let beside = path.with_extension("new");
        fs::write(&beside, text).expect("writes");
        fs::rename(&beside, path).expect("renames");
    }

    #[test]
    fn a_file_that_is_bad_at_start_is_an_error_that_names_it() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("endpoints.yaml");
        let absent = FileDiscovery::open(&path).expect_err("absent").to_string();
        assert!(absent.contains("endpoints.yaml"), "{absent}");
        fs::write(&path, "endpoints: [{address: x, model: m}]").expect("writes");
        let bad = FileDiscovery::open(&path).expect_err("bad");
        assert_eq!(bad.field, "endpoints[0].address");
    }

    #[tokio::test]
    async fn an_atomic_rename_and_a_rewrite_in_place_are_seen() {
        let (_folder, path, mut discovery) = watched(ONE);
        assert_eq!(discovery.first().len(), 1);
        assert_eq!(discovery.look().await, None);
        replace(&path, TWO);
        assert_eq!(discovery.look().await.expect("changed").len(), 2);
        assert_eq!(discovery.look().await, None);
        fs::write(&path, "endpoints: []").expect("writes");
        assert_eq!(discovery.look().await.expect("changed").len(), 0);
    }

    #[tokio::test]
    async fn a_bad_or_removed_file_keeps_the_last_good_set() {
        let (_folder, path, mut discovery) = watched(ONE);
        replace(&path, "endpoints: [{address: nowhere}]");
        assert_eq!(discovery.look().await, None);
        fs::remove_file(&path).expect("removes");
        assert_eq!(discovery.look().await, None);
        replace(&path, TWO);
        assert_eq!(discovery.look().await.expect("good again").len(), 2);
    }

    #[tokio::test]
    async fn sets_arrive_on_the_channel() {
        let (_folder, path, discovery) = watched(ONE);
        let (sender, mut sets) = watch::channel(None);
        let token = CancellationToken::new();
        let task = tokio::spawn(discovery.run(sender, token.clone()));
        let length = |set: &Option<EndpointSet>| set.as_ref().map(|set| set.len());
        let patience = Duration::from_secs(10);
        tokio::time::timeout(patience, sets.wait_for(|set| length(set) == Some(1)))
            .await
            .expect("in time")
            .expect("sender lives");
        replace(&path, TWO);
        tokio::time::timeout(patience, sets.wait_for(|set| length(set) == Some(2)))
            .await
            .expect("in time")
            .expect("sender lives");
        token.cancel();
        task.await.expect("ends");
    }
}
