//! The examples that the repository ships, as tests start them.

use std::fs;
use std::path::{Path, PathBuf};

use crate::repository;

/// The path of a file in `examples/`.
#[must_use]
pub fn example(path: &str) -> PathBuf {
    repository().join("examples").join(path)
}

/// Writes such a file to `folder` with other ports and such in it, each of which it must name, and returns its path.
///
/// # Panics
/// If it does not name one.
pub fn with_changes(path: &str, folder: &Path, changes: &[(&str, String)]) -> PathBuf {
    let mut text = fs::read_to_string(example(path)).expect("the example is there");
    for (shipped, instead) in changes {
        assert!(text.contains(shipped), "{path} says {shipped}");
        text = text.replace(shipped, instead);
    }
    let name = Path::new(path).file_name().expect("it has a name");
    let written = folder.join(name);
    fs::write(&written, text).expect("files can be written");
    written
}
