//! No program panics. Logs are read while they grow, since those of a deleted pod go with it.

use std::collections::HashMap;
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::fleet::NAMESPACE;

const EVERY: Duration = Duration::from_secs(1);
/// Most of a log that is read at once.
const CHUNK: u64 = 4 << 20;
/// What Rust and Envoy write when they die by their own fault.
const SIGNS: [&str; 4] = [
    "panicked at",
    "Caught Segmentation fault",
    "assert failure",
    "Caught Aborted",
];

/// The logs of all containers in the namespaces that matter.
#[derive(Debug)]
pub(crate) struct Logs {
    state: PathBuf,
    read: HashMap<PathBuf, u64>,
}

impl Logs {
    /// Of the cluster whose state is in `state`.
    pub(crate) fn new(state: &Path) -> Self {
        Self {
            state: state.to_owned(),
            read: HashMap::new(),
        }
    }

    /// Tells of each line that shows a panic, for ever.
    pub(crate) async fn watch(mut self, tell: impl Fn(String)) {
        loop {
            for line in self.look() {
                tell(line);
            }
            tokio::time::sleep(EVERY).await;
        }
    }

    /// Lines that show a panic, since the last look. What vanishes while it is read is left out.
    pub(crate) fn look(&mut self) -> Vec<String> {
        let mut found = Vec::new();
        let logs = ["node1", "node2"].map(|node| self.state.join(node).join("log/pods"));
        let pods = logs.iter().flat_map(|folder| entries(folder)).filter(|pod| {
            let name = pod.file_name().unwrap_or_default().to_string_lossy();
            name.starts_with(&format!("{NAMESPACE}_")) || name.starts_with("lmetric-system_")
        });
        let files: Vec<_> = pods
            .flat_map(|pod| entries(&pod))
            .flat_map(|container| entries(&container))
            .collect();
        self.read.retain(|file, _| files.contains(file));
        for file in files {
            let from = self.read.entry(file.clone()).or_default();
            let Some(text) = tail(&file, *from) else { continue };
            // a line that is not complete yet is read again
            let whole = text.rfind('\n').map_or(0, |end| end + 1);
            *from += whole as u64;
            let bad = text[..whole]
                .lines()
                .filter(|line| SIGNS.iter().any(|sign| line.contains(sign)));
            found.extend(bad.map(|line| format!("{}: {line}", file.display())));
        }
        found
    }
}

fn entries(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).into_iter().flatten();
    entries
        .filter_map(|entry| entry.ok().map(|entry| entry.path()))
        .collect()
}

fn tail(file: &Path, from: u64) -> Option<String> {
    let mut file = std::fs::File::open(file).ok()?;
    file.seek(SeekFrom::Start(from)).ok()?;
    let mut bytes = Vec::new();
    file.take(CHUNK).read_to_end(&mut bytes).ok()?;
    // one character is one byte here: the length is what was read
    Some(
        bytes
            .into_iter()
            .map(|byte| if byte.is_ascii() { byte as char } else { '?' })
            .collect(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_is_found_once_wherever_the_log_was_cut() {
        let state = std::env::temp_dir().join(format!("chaos-logs-{}", std::process::id()));
        let folder = state.join("node1/log/pods/chaos_alpha-picker-1_uid/picker");
        std::fs::create_dir_all(&folder).unwrap();
        let file = folder.join("0.log");
        let mut logs = Logs::new(&state);
        std::fs::write(&file, "starts ✓\nthread 'main' panicked ").unwrap();
        assert_eq!(logs.look(), Vec::<String>::new());
        std::fs::write(&file, "starts ✓\nthread 'main' panicked at src/x.rs:1\nmore\n").unwrap();
        assert_eq!(logs.look().len(), 1);
        assert_eq!(logs.look().len(), 0);
        std::fs::remove_dir_all(&state).unwrap();
    }
}
