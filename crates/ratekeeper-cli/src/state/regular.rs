//! Opening files that may have been replaced by something other than a regular file.

use std::fs::{File, FileType};
use std::io;
use std::path::{Path, PathBuf};

/// The reason why a regular file could not be opened.
#[derive(Debug, thiserror::Error)]
pub(super) enum OpenError {
    /// Something else is in its place.
    #[error("{} is {kind}; a regular file is needed there", path.display())]
    NotRegular { path: PathBuf, kind: &'static str },
    /// The error of the system.
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// Opens the regular file at `path` for reading; links are followed.
///
/// # Errors
/// It does not exist, cannot be read, or is not a regular file.
pub(super) fn open(path: &Path) -> Result<File, OpenError> {
    checked(path, system::open(path))
}

/// Opens the regular file at `path` without following a link there, and creates it if there is none. Its content
/// is kept.
///
/// # Errors
/// It cannot be created or opened, or is not a regular file.
pub(super) fn open_or_make(path: &Path) -> Result<File, OpenError> {
    if path.is_symlink() {
        return Err(OpenError::NotRegular {
            path: path.to_path_buf(),
            kind: "a symbolic link",
        });
    }
    checked(path, system::open_or_make(path))
}

fn checked(path: &Path, opened: io::Result<File>) -> Result<File, OpenError> {
    let not_regular = |kind: FileType| OpenError::NotRegular {
        path: path.to_path_buf(),
        kind: name(kind),
    };
    let file = match opened {
        Ok(file) => file,
        // Sockets and folders are refused by the system, in words of its own.
        Err(error) => match std::fs::metadata(path) {
            Ok(found) if !found.is_file() => return Err(not_regular(found.file_type())),
            _ => return Err(error.into()),
        },
    };
    let kind = file.metadata()?.file_type();
    if kind.is_file() {
        Ok(file)
    } else {
        Err(not_regular(kind))
    }
}

#[cfg(unix)]
fn name(kind: FileType) -> &'static str {
    use std::os::unix::fs::FileTypeExt as _;
    match () {
        () if kind.is_dir() => "a folder",
        () if kind.is_fifo() => "a FIFO",
        () if kind.is_socket() => "a socket",
        () if kind.is_block_device() || kind.is_char_device() => "a device",
        () => "no file",
    }
}

#[cfg(not(unix))]
fn name(kind: FileType) -> &'static str {
    if kind.is_dir() { "a folder" } else { "no file" }
}

/// Opening without blocking: a FIFO would otherwise block until somebody opens its other end.
#[cfg(unix)]
mod system {
    use rustix::fs::{Mode, OFlags};
    use std::fs::File;
    use std::io;
    use std::path::Path;

    pub(super) fn open(path: &Path) -> io::Result<File> {
        open_with(path, OFlags::RDONLY)
    }

    pub(super) fn open_or_make(path: &Path) -> io::Result<File> {
        // A link that appears after the caller has looked is refused here.
        open_with(path, OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW)
    }

    fn open_with(path: &Path, flags: OFlags) -> io::Result<File> {
        let flags = flags | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let opened = rustix::fs::open(path, flags, Mode::RUSR | Mode::WUSR)?;
        Ok(File::from(opened))
    }
}

#[cfg(not(unix))]
mod system {
    use std::fs::{File, OpenOptions};
    use std::io;
    use std::path::Path;

    pub(super) fn open(path: &Path) -> io::Result<File> {
        File::open(path)
    }

    pub(super) fn open_or_make(path: &Path) -> io::Result<File> {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false);
        options.open(path)
    }
}
