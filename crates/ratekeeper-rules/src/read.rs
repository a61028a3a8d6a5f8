//! Reading rules from a file or a folder.

use std::path::{Path, PathBuf};

/// The text of one file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Source {
    /// What the file is called in messages.
    pub name: String,
    /// What is in it.
    pub text: String,
}

/// What of a folder is read.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ReadOptions {
    /// Every file whatever its name ends with, as the incumbent does; else `*.yaml` and `*.yml`.
    pub every_file: bool,
}

/// Why nothing was read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReadError {
    /// The file system said no.
    #[error("cannot read {}", path.display())]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// What it said.
        source: std::io::Error,
    },
}

/// Reads `path`: that file, or all files of that folder.
///
/// # Errors
/// If something there cannot be read.
pub fn read(path: &Path, options: &ReadOptions) -> Result<Vec<Source>, ReadError> {
    let _ = options;
    let io = |source| ReadError::Io {
        path: path.to_owned(),
        source,
    };
    let text = std::fs::read_to_string(path).map_err(io)?;
    Ok(vec![Source {
        name: path.display().to_string(),
        text,
    }])
}
