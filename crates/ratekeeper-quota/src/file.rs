//! The file of a SQLite database, which somebody may move or replace while connections to it are open.
//!
//! SQLite goes on with the file that it has opened, wherever that is by now: changes would be confirmed, and gone with
//! the next start. So each operation looks whether the path still leads to the same file.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// A file, whatever its path.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct FileId {
    device: u64,
    inode: u64,
}

impl FileId {
    /// The file at `path`; [`None`] if there is none.
    #[cfg(unix)]
    pub(crate) fn at(path: &Path) -> Option<Self> {
        use std::os::unix::fs::MetadataExt as _;
        let found = std::fs::metadata(path).ok()?;
        Some(Self {
            device: found.dev(),
            inode: found.ino(),
        })
    }

    /// The file at `path`; [`None`] if there is none. An open file cannot be replaced here.
    #[cfg(not(unix))]
    pub(crate) fn at(path: &Path) -> Option<Self> {
        path.exists().then(Self::default)
    }
}

/// The last time that another file was found in the place of the database's.
#[derive(Clone, Debug, Default)]
pub(crate) struct Replaced(Arc<Mutex<Option<Instant>>>);

impl Replaced {
    pub(crate) fn now(&self) {
        *self.0.lock() = Some(Instant::now());
    }

    pub(crate) fn at(&self) -> Option<Instant> {
        *self.0.lock()
    }

    /// Returns true if a connection of this age is to the file that is there now.
    pub(crate) fn is_before(&self, age: Duration) -> bool {
        self.at().is_none_or(|at| age < at.elapsed())
    }
}
