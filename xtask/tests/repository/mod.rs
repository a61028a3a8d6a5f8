//! The repository that the tests read.

use std::path::{Path, PathBuf};

/// The folder of the workspace.
pub(crate) fn root() -> PathBuf {
    let xtask = Path::new(env!("CARGO_MANIFEST_DIR"));
    let parent = xtask.parent();
    parent.expect("xtask lies in the repository").to_owned()
}
