//! Files that are read again when they have changed.

use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

use parking_lot::Mutex;
use rustls::ClientConfig;

use crate::{FILE_BYTES_MAX, TlsFile, TlsFileCause, TlsFileError, TlsFiles};

/// Encryption by certain files, for whoever connects. A file that has changed is read again for
/// the next connection.
pub struct ClientTls {
    files: TlsFiles,
    /// What was made of the files, and of which state of them.
    made: Mutex<Option<(Stamps, Arc<ClientConfig>)>>,
}

/// Tells states of the files apart.
type Stamps = Vec<(SystemTime, u64)>;

impl fmt::Debug for ClientTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.files.fmt(f)
    }
}

impl Default for ClientTls {
    /// By the authorities that the system trusts.
    fn default() -> Self {
        Self::new(TlsFiles::default())
    }
}

impl ClientTls {
    /// By these files, which are first read when they are first needed.
    #[must_use]
    pub const fn new(files: TlsFiles) -> Self {
        Self {
            files,
            made: Mutex::new(None),
        }
    }

    /// What the next connection is encrypted by. While a file cannot be read that could before,
    /// as when it is renewed by deleting it first, it is what the last one was. Asks the file
    /// system for the state of each file; blocks while it reads those that have changed.
    ///
    /// # Errors
    /// One of the files is of no use, or they do not fit together.
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
    fn a_file_that_is_gone_for_a_moment_is_missed_by_nobody() {
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
        // What is there and no good is not passed over.
        put(&path, "no certificate");
        assert!(tls.config().is_err());
        // Of another length, should the file system's clock be a coarse one.
        put(&path, &format!("another\n{}", Authority::new().pem()));
        let after = tls.config().expect("the new file is good");
        assert!(!Arc::ptr_eq(&before, &after));
    }
}
