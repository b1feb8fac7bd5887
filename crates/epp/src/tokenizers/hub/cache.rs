//! The folder of downloaded tokenizers. Each has a folder of its own that appears whole, by a rename.

use std::{
    fs, io,
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, SystemTime},
};

use lmetric_api::Repository;
use xxhash_rust::xxh3::xxh3_64;

/// Kept in all; the oldest go first.
const BOUND: u64 = 512 << 20;
/// What a picker that was killed left half done is removed after this.
const ABANDONED: Duration = Duration::from_hours(1);

/// The folder cannot be used.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{}: {source}; make tokenizerCache a folder that the picker may write, with room for a tokenizer", path.display())]
pub struct CacheError {
    /// Folder or file.
    pub path: PathBuf,
    /// What is wrong.
    pub source: Arc<io::Error>,
}

impl PartialEq for CacheError {
    fn eq(&self, other: &Self) -> bool {
        self.path == other.path && self.source.kind() == other.source.kind()
    }
}

impl Eq for CacheError {}

/// Clones are the same folder.
#[derive(Clone, Debug)]
pub struct Cache {
    root: Arc<Path>,
}

impl Cache {
    /// Keeps tokenizers in `root`, which need not exist yet.
    pub fn new(root: &Path) -> Self {
        Self { root: root.into() }
    }

    /// `lmetric/tokenizers` in the cache folder of the user who runs the picker.
    pub fn default_root() -> PathBuf {
        let said = |name: &str| {
            std::env::var_os(name)
                .filter(|value| !value.is_empty())
                .map(PathBuf::from)
        };
        said("XDG_CACHE_HOME")
            .or_else(|| said("HOME").map(|home| home.join(".cache")))
            .unwrap_or_else(std::env::temp_dir)
            .join("lmetric/tokenizers")
    }

    /// Folder of a repository's files at a revision, from one endpoint.
    pub(super) fn folder(&self, repository: &Repository, endpoint: &str) -> PathBuf {
        let Repository {
            site,
            name,
            revision,
            endpoint: _,
            token_file: _,
        } = repository;
        let hash = xxh3_64(format!("{endpoint}\n{revision}").as_bytes());
        self.root.join(format!(
            "{}--{}--{hash:016x}",
            site.scheme(),
            name.replace('/', "--")
        ))
    }

    pub(super) async fn holds(&self, folder: &Path) -> bool {
        tokio::fs::metadata(folder.join("tokenizer.json")).await.is_ok()
    }

    /// Writes a tokenizer's files, whole or not at all.
    pub(super) async fn keep(
        &self,
        folder: &Path,
        files: Vec<(&'static str, Vec<u8>)>,
    ) -> Result<(), CacheError> {
        let (root, folder) = (self.root.clone(), folder.to_owned());
        let written = tokio::task::spawn_blocking(move || {
            fs::create_dir_all(&root).map_err(|error| failed(&root, error))?;
            let half = root.join(format!(".{:016x}", rand::random::<u64>()));
            let result = write(&half, &files).and_then(|()| {
                // what is there is of no use, or somebody else was quicker
                let _ = fs::remove_dir_all(&folder);
                fs::rename(&half, &folder).map_err(|error| failed(&folder, error))
            });
            if result.is_err() {
                let _ = fs::remove_dir_all(&half);
            }
            result?;
            tidy(&root, &folder);
            Ok(())
        });
        match written.await {
            Ok(result) => result,
            Err(error) => Err(failed(&self.root, io::Error::other(error))),
        }
    }

    pub(super) async fn forget(&self, folder: &Path) {
        let _ = tokio::fs::remove_dir_all(folder).await;
    }
}

fn failed(path: &Path, error: io::Error) -> CacheError {
    CacheError {
        path: path.to_owned(),
        source: Arc::new(error),
    }
}

fn write(folder: &Path, files: &[(&'static str, Vec<u8>)]) -> Result<(), CacheError> {
    for (name, bytes) in files {
        let path = folder.join(name);
        let parent = path.parent().unwrap_or(folder);
        fs::create_dir_all(parent).map_err(|error| failed(parent, error))?;
        fs::write(&path, bytes).map_err(|error| failed(&path, error))?;
    }
    Ok(())
}

/// Removes what was left half done, and the oldest tokenizers beyond the bound; `newest` stays.
fn tidy(root: &Path, newest: &Path) {
    let Ok(entries) = fs::read_dir(root) else { return };
    let mut kept: Vec<(SystemTime, PathBuf, u64)> = Vec::new();
    for entry in entries.flatten() {
        let (path, name) = (entry.path(), entry.file_name());
        let name = name.to_string_lossy();
        let Ok(changed) = entry.metadata().and_then(|data| data.modified()) else {
            continue;
        };
        if name.starts_with('.') {
            if changed.elapsed().is_ok_and(|age| age > ABANDONED) {
                let _ = fs::remove_dir_all(&path);
            }
        } else if path != newest && (name.starts_with("hf--") || name.starts_with("ms--")) {
            let bytes = size(&path);
            kept.push((changed, path, bytes));
        }
    }
    kept.sort_by_key(|(changed, ..)| std::cmp::Reverse(*changed));
    let mut sum = size(newest);
    for (_, path, bytes) in kept {
        sum += bytes;
        if sum > BOUND {
            let _ = fs::remove_dir_all(&path);
        }
    }
}

fn size(folder: &Path) -> u64 {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries
        .filter_map(|entry| entry.metadata().ok())
        .map(|data| data.len())
        .sum()
}
