//! The ways in which an export fails.

#[cfg(feature = "nats")]
use std::path::PathBuf;
use std::time::Duration;

use ratekeeper_quota::QuotaError;
use ratekeeper_store_redis::KeyError;
use ratekeeper_tls::TlsFileError;

/// An error of an export. All of them are tried again.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ExportError {
    /// The database that has the trail.
    #[error("the quota database cannot be read")]
    Database(#[from] QuotaError),
    /// Redis cannot be reached, or refuses.
    #[error("Redis does not take the records")]
    Redis(#[from] KeyError),
    /// Redis has closed the connection since it was asked for its last record.
    #[error("Redis has closed the connection")]
    Disconnected,
    /// A file for TLS.
    #[error("no TLS with the target")]
    TlsFile(#[from] TlsFileError),
    /// The file with credentials cannot be read.
    #[cfg(feature = "nats")]
    #[error("cannot read {}", path.display())]
    CredentialsFile {
        /// The file.
        path: PathBuf,
        /// The reason.
        source: std::io::Error,
    },
    /// The file with credentials has none.
    #[cfg(feature = "nats")]
    #[error("{} has neither the seed of a user's nkey nor a JWT with one", .0.display())]
    NoCredentials(PathBuf),
    /// NATS cannot be reached.
    #[cfg(feature = "nats")]
    #[error("NATS cannot be reached")]
    Connect(#[from] async_nats::ConnectError),
    /// No stream confirms the records.
    #[cfg(feature = "nats")]
    #[error("NATS does not take the records; a JetStream stream has to have the subject")]
    Publish(#[from] async_nats::jetstream::context::PublishError),
    /// A mistake of ours.
    #[error("the export has panicked: please report this bug, with the log")]
    Panicked,
    /// The target does not answer.
    #[error("the target did not answer within {} s", .0.as_secs())]
    TooSlow(Duration),
}
