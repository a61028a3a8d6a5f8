//! The copy of tokens and switches in the data folder, which decides while the quota database is away.

use std::io;
use std::path::{Path, PathBuf};

use ratekeeper_core::formats::{FLEET_COPY, OtherVersion};
use ratekeeper_quota::FleetRecord;
use serde::{Deserialize, Serialize};

use crate::access::{AdminTokenError, Tokens};
use crate::data_dir::atomic_file::{self, BadFile};

const NAME: &str = "fleet.saved.json";

/// The copy of what all nodes of a quota database share.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FleetCopy {
    /// The address of the database, without its password.
    pub database: String,
    /// The tokens and switches.
    pub state: FleetRecord,
}

/// The reason why the copy cannot be used or saved.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FleetCopyError {
    /// The file cannot be read or written.
    #[error("cannot use {}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// The file is not a copy.
    #[error("{} is damaged", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// The error at its place.
        source: serde_json::Error,
    },
    /// A different version of Ratekeeper wrote the file.
    #[error("{}: {version}", path.display())]
    Version {
        /// The file.
        path: PathBuf,
        /// Its version.
        version: OtherVersion,
    },
    /// The file that demands tokens cannot be written.
    #[error(transparent)]
    Marker(#[from] AdminTokenError),
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Content {
    version: u32,
    database: String,
    state: FleetRecord,
}

impl FleetCopy {
    /// Loads the copy in `folder`; [`None`] if there is none. Blocks.
    ///
    /// # Errors
    /// The file cannot be read, is damaged, or is of another version.
    pub fn load(folder: &Path) -> Result<Option<Self>, FleetCopyError> {
        let path = folder.join(NAME);
        let content = match atomic_file::load(&path, FLEET_COPY) {
            Ok(content) => content,
            Err(BadFile::Io(source)) => return Err(FleetCopyError::Io { path, source }),
            Err(BadFile::Json(source)) => return Err(FleetCopyError::Damaged { path, source }),
            Err(BadFile::Version(version)) => {
                return Err(FleetCopyError::Version { path, version });
            }
        };
        Ok(content.map(|content: Content| Self {
            database: content.database,
            state: content.state,
        }))
    }

    /// Saves the copy in `folder`, and demands tokens there from now on if the nodes do. Blocks.
    ///
    /// # Errors
    /// A file cannot be written, or a later version of Ratekeeper wrote it.
    pub(crate) fn save(self, folder: &Path) -> Result<(), FleetCopyError> {
        if self.state.tokens_required {
            Tokens::new(folder).mark()?;
        }
        if let Err(error @ FleetCopyError::Version { .. }) = Self::load(folder) {
            // One of a later version stays for that one.
            return Err(error);
        }
        let path = folder.join(NAME);
        let content = Content {
            version: FLEET_COPY.version,
            database: self.database,
            state: self.state,
        };
        // Texts and numbers: nothing in there can fail.
        let text = serde_json::to_vec_pretty(&content).unwrap_or_default();
        atomic_file::write(&path, &text).map_err(|source| FleetCopyError::Io { path, source })
    }

    /// Removes the copy in `folder`. Blocks.
    ///
    /// # Errors
    /// The file cannot be removed.
    pub(crate) fn remove(folder: &Path) -> Result<(), FleetCopyError> {
        let path = folder.join(NAME);
        std::fs::remove_file(&path).map_err(|source| FleetCopyError::Io { path, source })
    }
}
