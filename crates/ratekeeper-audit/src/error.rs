//! The ways in which an export fails.

use std::path::PathBuf;
use std::time::Duration;

use ratekeeper_quota::QuotaError;

/// An error of an export. All of them are tried again.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ExportError {
    /// The database that has the trail.
    #[error("the quota database cannot be read")]
    Database(#[from] QuotaError),
    /// The file with the authorities to trust.
    #[error("cannot read {}", path.display())]
    Authorities {
        /// The file.
        path: PathBuf,
        /// The reason.
        source: std::io::Error,
    },
    /// Redis cannot be reached, or refuses.
    #[error("Redis does not take the records")]
    Redis(#[from] redis::RedisError),
    /// NATS cannot be reached.
    #[cfg(feature = "nats")]
    #[error("NATS cannot be reached")]
    Connect(#[from] async_nats::ConnectError),
    /// No stream confirms the records.
    #[cfg(feature = "nats")]
    #[error("NATS does not take the records; a JetStream stream has to have the subject")]
    Publish(#[from] async_nats::jetstream::context::PublishError),
    /// The target does not answer.
    #[error("the target did not answer within {} s", .0.as_secs())]
    TooSlow(Duration),
}

impl ExportError {
    /// The error with its causes.
    pub(crate) fn in_words(&self) -> String {
        let mut words = self.to_string();
        let mut source = std::error::Error::source(self);
        while let Some(cause) = source {
            let cause_words = cause.to_string();
            // Some errors repeat their cause.
            if !words.ends_with(&cause_words) {
                words.push_str(": ");
                words.push_str(&cause_words);
            }
            source = cause.source();
        }
        words
    }
}
