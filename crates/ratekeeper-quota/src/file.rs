//! The file of a SQLite database, which somebody may move or replace while connections to it are open.
//!
//! SQLite goes on with the file that it has opened, wherever that is by now: changes would be confirmed, and gone with
//! the next start. So each operation checks that the path still leads to the same file. Another file in its place is
//! not adopted before a restart: it may be empty, belong to another key, or lie beside the write-ahead log of this one.

use std::io;
use std::path::Path;

/// A file, whatever its path.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct FileId {
    device: u64,
    inode: u64,
}

impl FileId {
    /// The file at `path`.
    #[cfg(unix)]
    pub(crate) fn at(path: &Path) -> io::Result<Self> {
        use std::os::unix::fs::MetadataExt as _;
        let found = std::fs::metadata(path)?;
        Ok(Self {
            device: found.dev(),
            inode: found.ino(),
        })
    }

    /// The file at `path`. An open file cannot be replaced here.
    #[cfg(not(unix))]
    pub(crate) fn at(path: &Path) -> io::Result<Self> {
        std::fs::metadata(path).map(|_| Self::default())
    }
}
