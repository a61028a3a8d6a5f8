//! The ways in which an operation on the quota store fails.

use std::error::Error;
use std::io;
use std::path::{Path, PathBuf};

use ratekeeper_rules::BadQuotas;

/// An error of the quota store.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum QuotaError {
    /// The tenant cannot have these quotas; [`BadQuotas::field`] names the field.
    #[error(transparent)]
    Invalid(#[from] BadQuotas),
    /// The tenant is not in the version that the editor knows.
    #[error("{}", match .current {
        Some(version) => format!("the tenant was changed meanwhile: its version is {version}"),
        None => "there is no such tenant in the quota store".to_owned(),
    })]
    Changed {
        /// The version that the tenant has; [`None`] if it is not there.
        current: Option<u64>,
    },
    /// The quota store does not have the tenant.
    #[error("there is no such tenant in the quota store")]
    NotFound,
    /// The database has another tenant's hashes: its keys were hashed under another `tenant_key`.
    #[error("the tenants in this database were hashed under another tenant_key")]
    OtherKey,
    /// The address is neither `sqlite://…` nor `postgres://…`.
    #[error(
        "not the address of a database: write sqlite://PATH or postgres://USER:PASSWORD@HOST/DATABASE"
    )]
    BadAddress(#[source] Option<sqlx::Error>),
    /// The file of SQLite was moved, deleted or replaced, or cannot be looked at. Nothing is read or written until it is
    /// back; another file in its place needs a restart.
    #[error("{}", gone(.0, .1.is_none()))]
    FileGone(PathBuf, #[source] Option<io::Error>),
    /// The tables are newer than this program. They stay as they are.
    #[error(transparent)]
    OtherTables(ratekeeper_core::formats::OtherVersion),
    /// The tables were changed by hand.
    #[error("the tables do not match this version of the program")]
    Migration(#[source] sqlx::migrate::MigrateError),
    /// A row cannot be read.
    #[error("the table {table} has an invalid row")]
    Corrupt {
        /// The table.
        table: &'static str,
    },
    /// The database did not answer in time. What was to be written may have been, as a whole.
    #[error("the database did not answer within {} s", .0.as_secs())]
    TooSlow(std::time::Duration),
    /// The database cannot be reached, or refuses. What was to be written was not, or as a whole if the
    /// connection broke at the very end.
    #[error("the database cannot be used")]
    Unavailable(#[from] sqlx::Error),
}

impl QuotaError {
    /// Returns true if trying again later may help.
    #[must_use]
    pub const fn is_temporary(&self) -> bool {
        matches!(
            self,
            Self::TooSlow(_) | Self::Unavailable(_) | Self::FileGone(..)
        )
    }

    /// Returns true if nobody listens at the address of the database.
    #[must_use]
    pub fn is_refusal(&self) -> bool {
        matches!(self, Self::Unavailable(error) if is_refusal(error))
    }
}

/// Returns true if nobody listens there.
pub(crate) fn is_refusal(error: &sqlx::Error) -> bool {
    matches!(error, sqlx::Error::Io(error) if error.kind() == io::ErrorKind::ConnectionRefused)
}

/// The words of [`QuotaError::FileGone`]. They reach callers, whom the folder does not concern.
fn gone(path: &Path, is_other: bool) -> String {
    let name = path.file_name().unwrap_or_default().display();
    match is_other {
        true => format!(
            "{name} is not the file that was opened: put that one back, or restart the node"
        ),
        false => format!("{name} cannot be read any more"),
    }
}

/// The error and its causes, in one line.
#[must_use]
pub fn with_causes(error: &dyn Error) -> String {
    let mut words = error.to_string();
    let mut source = error.source();
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
