//! Files that others renew while we run.

use std::path::{Path, PathBuf};
use std::time::SystemTime;

use parking_lot::Mutex;

/// The largest file that is read, in bytes.
const BYTES_MAX: u64 = 256 << 20;

/// A file, and what it looked like when it was last read.
#[derive(Debug)]
pub(super) struct Followed {
    pub(super) path: PathBuf,
    /// None while it cannot be read.
    seen: Mutex<Option<Stamp>>,
}

/// What tells a changed file without reading it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Stamp {
    bytes: u64,
    modified: Option<SystemTime>,
}

/// The content of the file at `path`.
pub(super) fn read(path: &Path) -> Result<(Vec<u8>, Followed), String> {
    let stamp = Stamp::of(path)?;
    let followed = Followed {
        path: path.to_owned(),
        seen: Mutex::new(Some(stamp)),
    };
    Ok((followed.content()?, followed))
}

impl Followed {
    /// The content, if it may be another than when it was last read.
    pub(super) fn changed(&self) -> Result<Option<Vec<u8>>, String> {
        let mut seen = self.seen.lock();
        let stamp = match Stamp::of(&self.path) {
            Ok(stamp) => stamp,
            // Said once, until it is back.
            Err(_) if seen.is_none() => return Ok(None),
            Err(message) => {
                *seen = None;
                return Err(message);
            }
        };
        if seen.replace(stamp) == Some(stamp) {
            return Ok(None);
        }
        self.content().map(Some)
    }

    fn content(&self) -> Result<Vec<u8>, String> {
        std::fs::read(&self.path).map_err(|error| unreadable(&self.path, &error))
    }
}

impl Stamp {
    fn of(path: &Path) -> Result<Self, String> {
        let metadata = std::fs::metadata(path).map_err(|error| unreadable(path, &error))?;
        if !metadata.is_file() || metadata.len() > BYTES_MAX {
            return Err(format!(
                "{}: expected a file of at most 256 MiB",
                path.display()
            ));
        }
        Ok(Self {
            bytes: metadata.len(),
            modified: metadata.modified().ok(),
        })
    }
}

fn unreadable(path: &Path, error: &std::io::Error) -> String {
    format!("{} cannot be read: {error}", path.display())
}
