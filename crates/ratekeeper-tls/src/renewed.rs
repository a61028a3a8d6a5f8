//! Reloads TLS files when they change.

use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

use parking_lot::Mutex;
use rustls::ClientConfig;

use crate::{FILE_BYTES_MAX, TlsFile, TlsFileCause, TlsFileError, TlsFiles};

/// The TLS configuration of a client. The next connection after a change of its files uses the new
/// contents.
pub struct ClientTls {
    files: TlsFiles,
    /// The latest configuration, with the state of the files from which it was built.
    made: Mutex<Option<(Stamps, Arc<ClientConfig>)>>,
}

/// Modification time and length of each file, to detect changes.
type Stamps = Vec<(SystemTime, u64)>;

impl fmt::Debug for ClientTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.files.fmt(f)
    }
}

impl Default for ClientTls {
    /// Uses the authorities of the system.
    fn default() -> Self {
        Self::new(TlsFiles::default())
    }
}

impl ClientTls {
    /// Uses these files, which are read on first use.
    #[must_use]
    pub const fn new(files: TlsFiles) -> Self {
        Self {
            files,
            made: Mutex::new(None),
        }
    }

    /// The configuration for the next connection. If a file has become unreadable, as when it is
    /// deleted during a renewal, the last configuration stays. Asks the file system for the state
    /// of each file; blocks while it reads changed ones.
    ///
    /// # Errors
    /// A file is unusable, or the files do not fit together.
    pub fn config(&self) -> Result<Arc<ClientConfig>, TlsFileError> {
        let mut made = self.made.lock();
        let current = self.stamps().and_then(|stamps| match &*made {
            Some((of, config)) if *of == stamps => Ok((stamps, Arc::clone(config))),
            _ => Ok((stamps, Arc::new(self.files.client_config()?))),
        });
        match (current, &*made) {
            (Ok(current), _) => Ok(Arc::clone(&made.insert(current).1)),
            (Err(error), Some((_, config))) if matches!(error.cause, TlsFileCause::Io(_)) => {
                Ok(Arc::clone(config))
            }
            (Err(error), _) => Err(error),
        }
    }

    fn stamps(&self) -> Result<Stamps, TlsFileError> {
        let identity = self.files.identity.as_ref();
        let files = [
            (TlsFile::Authorities, self.files.authorities.as_ref()),
            (TlsFile::Certificate, identity.map(|it| &it.certificate)),
            (TlsFile::Key, identity.map(|it| &it.key)),
        ];
        let files = files
            .into_iter()
            .filter_map(|(file, path)| Some((file, path?)));
        let stamps = files
            .map(|(file, path)| stamp(path).map_err(|cause| TlsFileError::new(file, path, cause)));
        stamps.collect()
    }
}

fn stamp(path: &Path) -> Result<(SystemTime, u64), TlsFileCause> {
    let metadata = path.metadata()?;
    if metadata.len() > FILE_BYTES_MAX {
        return Err(TlsFileCause::TooLarge);
    }
    Ok((metadata.modified()?, metadata.len()))
}

#[cfg(test)]
mod tests {
    use ratekeeper_testkit::certificates::{Authority, put};

    use super::*;

    #[test]
    fn a_file_that_is_gone_for_a_moment_is_not_missed() {
        let folder = tempfile::tempdir().expect("a folder can be made");
        let path = folder.path().join("ca.pem");
        put(&path, &Authority::new().pem());
        let files = TlsFiles {
            authorities: Some(path.clone()),
            identity: None,
        };
        let tls = ClientTls::new(files.clone());
        let before = tls.config().expect("the file is good");
        std::fs::remove_file(&path).expect("it was there");
        let meanwhile = tls.config().expect("the last one serves on");
        assert!(Arc::ptr_eq(&before, &meanwhile));
        assert!(ClientTls::new(files).config().is_err());
        // A file that exists and is invalid is not ignored.
        put(&path, "no certificate");
        assert!(tls.config().is_err());
        // A different length, in case the file system's timestamps are coarse.
        put(&path, &format!("another\n{}", Authority::new().pem()));
        let after = tls.config().expect("the new file is good");
        assert!(!Arc::ptr_eq(&before, &after));
    }
}
