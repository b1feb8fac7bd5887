//! Where the fixtures are.

use std::path::PathBuf;

/// A path below `testdata/`. Asked at run time: checkouts that share a target folder may share this program.
pub(crate) fn testdata(path: &str) -> PathBuf {
    let package: PathBuf = std::env::var_os("CARGO_MANIFEST_DIR")
        .map_or_else(|| env!("CARGO_MANIFEST_DIR").into(), PathBuf::from);
    package.join("testdata").join(path)
}
