//! `lmetric crds`: the definitions of our Kubernetes objects, as files.

use std::{fs, path::PathBuf};

use anyhow::Context as _;
use clap::Args;
use lmetric_api::pool;

/// Write the definitions of LMetric's Kubernetes objects, one file each
#[derive(Args, Debug)]
pub struct CrdsArgs {
    /// Folder to write to; it is made if it does not exist
    #[arg(long, value_name = "FOLDER", default_value = "crds")]
    out: PathBuf,
}

/// Name and text of each file.
pub fn files() -> [(&'static str, String); 1] {
    [("inferencepools.lmetric.io.yaml", pool::definition_yaml())]
}

/// Runs the command; says on `to` what it wrote.
pub fn run(args: &CrdsArgs, to: &mut dyn std::io::Write) -> anyhow::Result<()> {
    let CrdsArgs { out } = args;
    fs::create_dir_all(out)
        .with_context(|| format!("cannot make {}; choose another folder with --out", out.display()))?;
    for (name, text) in files() {
        let path = out.join(name);
        fs::write(&path, text).with_context(|| {
            format!(
                "cannot write {}; choose another folder with --out",
                path.display()
            )
        })?;
        writeln!(to, "{}", path.display())?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn committed_definitions_are_the_generated_ones() {
        // asked at run time: checkouts that share a target folder may share this program
        let package: PathBuf = std::env::var_os("CARGO_MANIFEST_DIR")
            .map_or_else(|| env!("CARGO_MANIFEST_DIR").into(), PathBuf::from);
        let committed = package.join("../../crds");
        for (name, text) in files() {
            let path = committed.join(name);
            let found = fs::read_to_string(&path).expect("every definition is committed");
            assert!(found == text, "{} is stale; run: lmetric crds", path.display());
        }
        let found = fs::read_dir(&committed).expect("crds/ exists").count();
        assert_eq!(found, files().len(), "crds/ holds a file that no type generates");
    }

    #[test]
    fn the_folder_is_made_and_every_file_named() {
        let folder = tempfile::tempdir().expect("a folder");
        let args = CrdsArgs {
            out: folder.path().join("new/crds"),
        };
        let mut said = Vec::new();
        run(&args, &mut said).expect("files are written");
        let path = args.out.join("inferencepools.lmetric.io.yaml");
        assert_eq!(String::from_utf8_lossy(&said), format!("{}\n", path.display()));
        assert_eq!(
            fs::read_to_string(path).expect("the file"),
            pool::definition_yaml()
        );
    }

    #[test]
    fn a_folder_that_cannot_be_made_is_named_with_the_remedy() {
        let file = tempfile::NamedTempFile::new().expect("a file");
        let args = CrdsArgs {
            out: file.path().join("crds"),
        };
        let error = run(&args, &mut Vec::new()).expect_err("a file is no folder");
        assert!(
            format!("{error:#}").contains("choose another folder with --out"),
            "{error:#}"
        );
    }
}
