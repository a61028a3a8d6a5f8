//! Reloads TLS files when they change.

use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

use parking_lot::Mutex;
use rustls::ClientConfig;
use tracing::warn;

use crate::{TlsFileError, TlsFiles};

/// The TLS configuration of a client. The next connection after a change of its files uses the new
/// contents.
pub struct ClientTls {
    files: TlsFiles,
    made: Mutex<Option<Made>>,
}

/// The last good configuration.
struct Made {
    config: Arc<ClientConfig>,
    /// The state of the files from which it was built.
    of: Stamps,
    /// The state of the files in which they were refused last.
    refused: Option<Stamps>,
}

/// Modification time and length of each file, to detect changes; None for one that cannot be looked at.
type Stamps = Vec<Option<(SystemTime, u64)>>;

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

    /// The configuration for the next connection. If the files have become unusable, as in the middle of a renewal, the
    /// last good one stays, and the log says so once for each state of the files. Asks the file system for the state of
    /// each file; blocks while it reads changed ones.
    ///
    /// # Errors
    /// There was no good one yet: a file is unusable, or the files do not fit together.
    pub fn config(&self) -> Result<Arc<ClientConfig>, TlsFileError> {
        let mut made = self.made.lock();
        let stamps = self.stamps();
        match &mut *made {
            Some(made) if made.of == stamps => Ok(Arc::clone(&made.config)),
            Some(made) => Ok(self.renewed(made, stamps)),
            None => {
                let made = made.insert(Made {
                    config: Arc::new(self.files.client_config()?),
                    of: stamps,
                    refused: None,
                });
                Ok(Arc::clone(&made.config))
            }
        }
    }

    /// Builds the configuration again, of files in that state. Refused ones are read each time: a file may become readable
    /// without a change of its state.
    fn renewed(&self, made: &mut Made, stamps: Stamps) -> Arc<ClientConfig> {
        match self.files.client_config() {
            Ok(config) => {
                *made = Made {
                    config: Arc::new(config),
                    of: stamps,
                    refused: None,
                };
            }
            Err(error) if made.refused.as_ref() != Some(&stamps) => {
                warn!(%error, "changed TLS files refused; the last good ones stay in use");
                made.refused = Some(stamps);
            }
            Err(_) => {}
        }
        Arc::clone(&made.config)
    }

    fn stamps(&self) -> Stamps {
        let identity = self.files.identity.as_ref();
        let files = [
            self.files.authorities.as_ref(),
            identity.map(|it| &it.certificate),
            identity.map(|it| &it.key),
        ];
        files.into_iter().flatten().map(|it| stamp(it)).collect()
    }
}

fn stamp(path: &Path) -> Option<(SystemTime, u64)> {
    let metadata = path.metadata().ok()?;
    Some((metadata.modified().ok()?, metadata.len()))
}

#[cfg(test)]
mod tests {
    use ratekeeper_testkit::certificates::{Authority, Validity, put};

    use super::*;
    use crate::TlsIdentity;

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
        // A different length, in case the file system's timestamps are coarse.
        put(&path, &format!("another\n{}", Authority::new().pem()));
        let after = tls.config().expect("the new file is good");
        assert!(!Arc::ptr_eq(&before, &after));
    }

    #[test]
    fn a_renewal_that_is_half_done_or_wrong_leaves_the_last_pair_in_use() {
        let folder = tempfile::tempdir().expect("a folder can be made");
        let files = ["ca.pem", "tls.crt", "tls.key"];
        let [authorities, certificate, key] = files.map(|name| folder.path().join(name));
        let authority = Authority::new();
        put(&authorities, &authority.pem());
        let identity = authority.issue("localhost", Validity::Valid);
        put(&certificate, &identity.certificate);
        put(&key, &identity.key);
        let identity = TlsIdentity {
            certificate: certificate.clone(),
            key: key.clone(),
        };
        let files = TlsFiles {
            authorities: Some(authorities),
            identity: Some(identity),
        };
        let tls = ClientTls::new(files.clone());
        let before = tls.config().expect("the pair is good");
        // Lengths differ, in case the file system's timestamps are coarse.
        let renewed = authority.issue("renewed.localhost", Validity::Valid);
        let (half, _) = renewed.certificate.split_at(100);
        for written in [half, &renewed.certificate, "no certificate"] {
            put(&certificate, written);
            let meanwhile = tls.config().expect("the last one serves on");
            assert!(Arc::ptr_eq(&before, &meanwhile), "{written}");
            assert!(ClientTls::new(files.clone()).config().is_err(), "{written}");
        }
        put(&certificate, &renewed.certificate);
        put(&key, &renewed.key);
        let after = tls.config().expect("the new pair is good");
        assert!(!Arc::ptr_eq(&before, &after));
    }
}
