//! The file of a SQLite database, which somebody may move or replace while connections to it are open.
//!
//! SQLite goes on with the file that it has opened, wherever that is by now: changes would be confirmed, and gone with
//! the next start. So each operation checks that the path still leads to the same file. Another file in its place is
//! not adopted before a restart: it may be empty, belong to another key, or lie beside the write-ahead log of this one.

use std::io;
use std::path::Path;
#[cfg(unix)]
use std::path::PathBuf;

/// A file, whatever its path.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct FileId {
    device: u64,
    inode: u64,
}

impl FileId {
    /// Its number in the file system: a copy has another one.
    pub(crate) const fn number(self) -> u64 {
        self.inode
    }

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

/// The ends of the names of the files that SQLite keeps beside a database.
#[cfg(unix)]
const BESIDE: [&str; 3] = ["-wal", "-shm", "-journal"];

/// Lets only this user read the database at `path`, which is made if it is not there, and the files beside it. SQLite
/// gives those that it makes later the mode of the database.
///
/// # Errors
/// A file that others can read is not this user's to change.
#[cfg(unix)]
pub(crate) fn make_private(path: &Path) -> io::Result<()> {
    use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
    let mut options = std::fs::File::options();
    // Why it cannot be made is for SQLite to say.
    let _ = options.write(true).create_new(true).mode(0o600).open(path);
    let beside = |end: &str| {
        let mut name = path.as_os_str().to_owned();
        name.push(end);
        PathBuf::from(name)
    };
    let all = std::iter::once(path.to_owned()).chain(BESIDE.map(beside));
    for file in all {
        let Ok(found) = std::fs::metadata(&file) else {
            continue;
        };
        let mut mode = found.permissions();
        if found.is_file() && mode.mode() & 0o077 != 0 {
            mode.set_mode(0o600);
            std::fs::set_permissions(&file, mode)?;
        }
    }
    Ok(())
}

/// Files have no modes here.
#[cfg(not(unix))]
pub(crate) fn make_private(_: &Path) -> io::Result<()> {
    Ok(())
}
