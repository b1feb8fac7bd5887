//! Where inputs are kept.

use std::path::{Path, PathBuf};

/// The folder `fuzz` of this checkout. Asked at run time: a program may be older than the place it lies in.
pub fn fuzz() -> PathBuf {
    let harness =
        std::env::var("CARGO_MANIFEST_DIR").unwrap_or_else(|_| env!("CARGO_MANIFEST_DIR").to_owned());
    let harness = Path::new(&harness);
    // cargo names the folder of the package that it runs: of the harness, or of the targets
    if harness.ends_with("harness") {
        harness.parent().map_or_else(PathBuf::new, Path::to_owned)
    } else {
        harness.to_owned()
    }
}

/// A path of the repository.
pub fn repository(path: &str) -> PathBuf {
    fuzz().join("..").join(path)
}

/// Seeds of a target.
pub fn corpus(target: &str) -> PathBuf {
    fuzz().join("corpus").join(target)
}

/// Inputs of a target that broke a rule once.
pub fn regressions(target: &str) -> PathBuf {
    fuzz().join("regressions").join(target)
}

/// Files of a folder in the order of their names; none where there is no folder.
pub fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let mut files: Vec<_> = entries
        .map(|entry| entry.path())
        .filter(|path| path.is_file())
        .collect();
    files.sort();
    files
}
