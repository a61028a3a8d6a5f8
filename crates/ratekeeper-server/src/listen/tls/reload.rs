//! Certificates are renewed while the service runs.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use ratekeeper_tls::TlsFileError;
use tracing::{error, info};

use super::Tls;
use super::files::{self, Files, Fingerprint};
use crate::reload::follow::{FilesRead, Followed};

impl Followed for Tls {
    fn name(&self) -> String {
        format!("the certificate of {}", self.listener)
    }

    fn label(&self) -> String {
        format!("{} certificate", self.listener)
    }

    fn refused(&self) -> Option<String> {
        self.refused.lock().clone()
    }

    fn paths(&self) -> Vec<PathBuf> {
        self.config.paths().map(Path::to_path_buf).collect()
    }

    fn known(&self) -> u64 {
        hashed(Ok(self.first))
    }

    fn read(self: Arc<Self>) -> FilesRead {
        let files = files::read(&self.config);
        let fingerprint = hashed(files.as_ref().map(Files::fingerprint));
        FilesRead {
            fingerprint,
            take: Box::new(move || self.take(files)),
        }
    }
}

/// Hashes the result of a reading: the files' fingerprint, or the reason they cannot be read.
fn hashed(seen: Result<Fingerprint, &TlsFileError>) -> u64 {
    // Only compared with others of this process. Errors of the system have no hash but that of their text.
    let mut hasher = DefaultHasher::new();
    seen.map_err(ToString::to_string).hash(&mut hasher);
    hasher.finish()
}

impl Tls {
    /// New connections get what the files say; what makes no sense leaves the last good ones in force.
    fn take(&self, files: Result<Files, TlsFileError>) {
        match files.and_then(|files| files::understand(&files, &self.config, self.protocol)) {
            Ok((config, expiry)) => {
                *self.refused.lock() = None;
                self.expiry.store(expiry, Ordering::Relaxed);
                self.in_force.store(Arc::new(config));
                self.counts.accepted.fetch_add(1, Ordering::Relaxed);
                info!(
                    listener = self.listener,
                    "new certificate in use for new connections"
                );
            }
            Err(error) => {
                self.counts.refused.fetch_add(1, Ordering::Relaxed);
                *self.refused.lock() = Some(error.to_string());
                error!(%error, listener = self.listener, "new certificate refused; the last good one stays in use");
            }
        }
    }
}
