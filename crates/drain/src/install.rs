//! The init container's part: copy the tool to where the engine's container sees it.

use std::{
    fs, io,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
};

/// Name of the copy.
pub const NAME: &str = "lmetric-drain";

/// Why there is no copy.
#[derive(Debug, thiserror::Error)]
#[error("{path}: {error}; mount a writable volume there")]
pub struct InstallError {
    path: PathBuf,
    error: io::Error,
}

/// Copies `program` into `folder`, whole or not at all, executable by everybody: the engine may run as any user.
pub fn install(program: &Path, folder: &Path) -> Result<PathBuf, InstallError> {
    let at = |path: &Path| {
        let path = path.to_owned();
        move |error| InstallError { path, error }
    };
    let (target, partial) = (folder.join(NAME), folder.join(format!(".{NAME}")));
    fs::create_dir_all(folder).map_err(at(folder))?;
    fs::copy(program, &partial).map_err(at(&partial))?;
    fs::set_permissions(&partial, fs::Permissions::from_mode(0o755)).map_err(at(&partial))?;
    fs::rename(&partial, &target).map_err(at(&target))?;
    Ok(target)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_copy_is_executable_and_replaces_an_older_one() {
        let folder = tempfile::tempdir().unwrap();
        let program = folder.path().join("program");
        let bin = folder.path().join("a/bin");
        for content in ["one", "two"] {
            fs::write(&program, content).unwrap();
            let copy = install(&program, &bin).unwrap();
            assert_eq!(copy, bin.join(NAME));
            assert_eq!(fs::read_to_string(&copy).unwrap(), content);
            assert_eq!(fs::metadata(&copy).unwrap().permissions().mode() & 0o777, 0o755);
        }
        assert_eq!(fs::read_dir(&bin).unwrap().count(), 1);
    }

    #[test]
    fn a_folder_that_cannot_be_made_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        fs::write(&file, "").unwrap();
        let error = install(&file, &file).unwrap_err().to_string();
        assert!(error.contains("file") && error.contains("mount"), "{error}");
    }
}
