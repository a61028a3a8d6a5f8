//! The lock that gives one process exclusive use of a state file.

use super::regular::{self, OpenError};
use std::fs::{File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};

/// A locked file beside the state file. The system releases the lock when the process ends, however it ends.
pub(super) struct Claim {
    locked: File,
    path: PathBuf,
}

/// The reason why a state file could not be claimed.
#[derive(Debug, thiserror::Error)]
pub(super) enum ClaimError {
    #[error("another ratekeeper keeps its counters in {}", state.display())]
    Taken { state: PathBuf },
    #[error("cannot make {} for --state", path.display())]
    Open { path: PathBuf, source: OpenError },
    #[error("cannot lock {} for --state", path.display())]
    Lock { path: PathBuf, source: io::Error },
}

impl Claim {
    /// Locks `state` + `.lock`.
    ///
    /// # Errors
    /// Another process has locked it, or it cannot be opened.
    pub(super) fn new(state: &Path) -> Result<Claim, ClaimError> {
        let mut path = state.as_os_str().to_owned();
        path.push(".lock");
        let path = PathBuf::from(path);
        let locked = match regular::open_or_make(&path) {
            Ok(locked) => locked,
            Err(source) => return Err(ClaimError::Open { path, source }),
        };
        match locked.try_lock() {
            Ok(()) => Ok(Claim { locked, path }),
            Err(TryLockError::WouldBlock) => Err(ClaimError::Taken {
                state: state.to_path_buf(),
            }),
            Err(TryLockError::Error(source)) => Err(ClaimError::Lock { path, source }),
        }
    }

    /// Returns true if the locked file is still the one that another process would try to lock.
    #[cfg(unix)]
    pub(super) fn holds(&self) -> bool {
        use std::os::unix::fs::MetadataExt as _;
        let id = |found: std::fs::Metadata| (found.dev(), found.ino());
        let there = std::fs::symlink_metadata(&self.path).map(id);
        matches!((there, self.locked.metadata().map(id)), (Ok(there), Ok(ours)) if there == ours)
    }

    /// Returns true if the locked file still exists; an open file cannot be removed here.
    #[cfg(not(unix))]
    pub(super) fn holds(&self) -> bool {
        self.locked.metadata().is_ok() && self.path.exists()
    }
}
