//! Files that are renewed while the process runs.

use std::path::{Path, PathBuf};
use std::time::SystemTime;

use parking_lot::Mutex;

use super::IdentityFault;

/// The largest file that is read, in bytes.
const BYTES_MAX: u64 = 256 << 20;

/// A file, with its metadata when it was last read.
#[derive(Debug)]
pub(super) struct WatchedFile {
    pub(super) path: PathBuf,
    last: Mutex<Last>,
}

/// The result of the last check.
#[derive(Debug)]
struct Last {
    /// Metadata of the contents read; None while it cannot be read.
    seen: Option<Stamp>,
    /// True once the error has been returned.
    is_told: bool,
}

/// Detects a changed file without reading it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Stamp {
    bytes: u64,
    modified: Option<SystemTime>,
}

/// Reads the file at `path`.
pub(super) fn read(path: &Path) -> Result<(Vec<u8>, WatchedFile), IdentityFault> {
    let stamp = Stamp::of(path)?;
    let watched = WatchedFile {
        path: path.to_owned(),
        last: Mutex::new(Last {
            seen: Some(stamp),
            is_told: false,
        }),
    };
    Ok((watched.content()?, watched))
}

impl WatchedFile {
    /// The contents, if they may have changed since the last read. A read error is returned once,
    /// until a read succeeds again; reading is retried each time.
    pub(super) fn changed(&self) -> Result<Option<Vec<u8>>, IdentityFault> {
        let mut last = self.last.lock();
        match self.read_unless(last.seen) {
            Ok(None) => Ok(None),
            Ok(Some((stamp, content))) => {
                *last = Last {
                    seen: Some(stamp),
                    is_told: false,
                };
                Ok(Some(content))
            }
            Err(fault) => {
                last.seen = None;
                match std::mem::replace(&mut last.is_told, true) {
                    true => Ok(None),
                    false => Err(fault),
                }
            }
        }
    }

    fn read_unless(&self, seen: Option<Stamp>) -> Result<Option<(Stamp, Vec<u8>)>, IdentityFault> {
        let stamp = Stamp::of(&self.path)?;
        if seen == Some(stamp) {
            return Ok(None);
        }
        Ok(Some((stamp, self.content()?)))
    }

    fn content(&self) -> Result<Vec<u8>, IdentityFault> {
        std::fs::read(&self.path).map_err(|error| unreadable(&self.path, error))
    }
}

impl Stamp {
    fn of(path: &Path) -> Result<Self, IdentityFault> {
        let metadata = std::fs::metadata(path).map_err(|error| unreadable(path, error))?;
        if !metadata.is_file() || metadata.len() > BYTES_MAX {
            return Err(IdentityFault::NotAFile(path.to_owned()));
        }
        Ok(Self {
            bytes: metadata.len(),
            modified: metadata.modified().ok(),
        })
    }
}

fn unreadable(path: &Path, error: std::io::Error) -> IdentityFault {
    IdentityFault::Unreadable {
        path: path.to_owned(),
        error,
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::fs::{self, File};
    use std::os::unix::fs::symlink;

    use super::read;

    #[test]
    fn an_unreadable_file_is_tried_again() -> std::io::Result<()> {
        let folder = tempfile::tempdir()?;
        let path = folder.path().join("keys");
        fs::write(&path, "first")?;
        let (content, file) = read(&path).expect("it can be read");
        assert_eq!(content, b"first");
        assert!(matches!(file.changed(), Ok(None)));

        // The file exists, and reading it fails.
        let unreadable = "/proc/self/mem";
        fs::remove_file(&path)?;
        symlink(unreadable, &path)?;
        assert!(file.changed().is_err());
        assert!(matches!(file.changed(), Ok(None)), "said once");

        // Same size and date, so the metadata does not show that it is readable now.
        let modified = fs::metadata(unreadable)?.modified()?;
        fs::remove_file(&path)?;
        File::create(&path)?.set_modified(modified)?;
        assert_eq!(file.changed().ok(), Some(Some(Vec::new())));
        assert!(matches!(file.changed(), Ok(None)));
        Ok(())
    }
}
