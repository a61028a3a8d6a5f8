//! Faults of the settings that identify callers, and of the files that they name.

use std::error::Error;
use std::io;
use std::path::PathBuf;

use super::ApiKeyFault;
use crate::source::{ValueSource, ValueSourceError};

/// An error in an [`IdentityConfig`](super::IdentityConfig), or in a file that it names.
#[derive(Debug, thiserror::Error)]
#[error("{place}: {fault}")]
pub struct IdentityError {
    /// The key of the settings.
    pub place: String,
    /// The problem, and a suggested fix.
    pub fault: IdentityFault,
}

impl IdentityError {
    pub(super) fn new(place: impl Into<String>, fault: IdentityFault) -> Self {
        Self {
            place: place.into(),
            fault,
        }
    }
}

/// The fault behind an [`IdentityError`]. Its text says what to write instead.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum IdentityFault {
    /// `from` has no part of a request, or more than this.
    #[error("expected 1 to {0} parts of a request")]
    Sources(usize),
    /// A part of a request has an empty key.
    #[error("the key is empty")]
    EmptyKey,
    /// `from` names itself.
    #[error("`identity` is what this list says; name a part of the request")]
    FromIdentity,
    /// A part of a request is malformed.
    #[error(transparent)]
    Part(#[from] ValueSourceError),
    /// A part of a request has the key of those whom nothing identifies.
    #[error(
        "the key `{key}` is for callers whom nothing names; write {{ from: '{part}', key: NAME }}"
    )]
    NobodyKey {
        /// The part.
        part: ValueSource,
        /// The key.
        key: &'static str,
    },
    /// Two parts of different kinds share a key.
    #[error(
        "`{part}` and `{other}` both name by the key `{key}`, so that one could be taken for the other; write \
         {{ from: '{part}', key: NAME }}"
    )]
    SharedKey {
        /// The part with the fault.
        part: ValueSource,
        /// The one before it.
        other: ValueSource,
        /// The key of both.
        key: Box<str>,
    },
    /// A part of a request is known only by further settings.
    #[error("`{part}` needs `{setting}` beside it")]
    Needs {
        /// The part.
        part: ValueSource,
        /// The missing setting.
        setting: &'static str,
    },
    /// No IPv6 network has this prefix.
    #[error("{0} is not 1 to 128")]
    Prefix(u8),
    /// The name of those whom nothing identifies is empty.
    #[error("it is empty; write `default: anonymous`")]
    EmptyDefault,
    /// There is no source of countries.
    #[error("expected `header`, `database` or both")]
    NoCountrySource,
    /// No header can have this name.
    #[error("`{0}` cannot be the name of a header")]
    HeaderName(Box<str>),
    /// There is not exactly one file of keys.
    #[error("expected one of `jwks_file`, `jwks_url` and `secret_file`, to check signatures with")]
    NotOneKeyFile,
    /// There is nothing to fetch.
    #[error("`jwks_ca` and `jwks_refresh_seconds` mean nothing without `jwks_url`")]
    NoKeyUrl,
    /// Keys cannot be fetched that often, or that seldom.
    #[error("`jwks_refresh_seconds`: {seconds} is not {least} to {most}")]
    Refresh {
        /// The seconds that were set.
        seconds: u32,
        /// The fewest.
        least: u32,
        /// The most.
        most: u32,
    },
    /// No algorithm of this name fits the keys.
    #[error("`{name}` is none of {known}")]
    Algorithm {
        /// The name.
        name: Box<str>,
        /// The algorithms that fit.
        known: Box<str>,
    },
    /// A file cannot be read.
    #[error("{} cannot be read: {error}", .path.display())]
    Unreadable {
        /// The path.
        path: PathBuf,
        /// The reason.
        error: io::Error,
    },
    /// A path names no file, or a large one.
    #[error("{}: expected a file of at most 256 MiB", .0.display())]
    NotAFile(PathBuf),
    /// A file is not an address database.
    #[error("{} is not a MaxMind DB: {error}", .path.display())]
    NotADatabase {
        /// The path.
        path: PathBuf,
        /// The reason.
        error: Box<dyn Error + Send + Sync>,
    },
    /// A file holds no keys that tokens can be verified with.
    #[error("{}: {fault}", .path.display())]
    Keys {
        /// The path.
        path: PathBuf,
        /// The reason.
        fault: KeysFault,
    },
    /// The API keys are not listed well.
    #[error(transparent)]
    ApiKeys(#[from] ApiKeyFault),
    /// The program cannot read address databases.
    #[error(
        "this program was built without the feature `geoip`, so it can read no database of addresses; `header` does \
         without"
    )]
    WithoutGeoip,
    /// The program cannot verify tokens.
    #[error("this program was built without the feature `jwt`, so it can check no token")]
    WithoutJwt,
}

/// The fault of a file with the keys of tokens.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum KeysFault {
    /// The secret is easy to guess.
    #[error("the secret is shorter than {bytes_min} bytes")]
    ShortSecret {
        /// The length of the shortest secret.
        bytes_min: usize,
    },
    /// The file is not a JSON Web Key Set.
    #[error("this is not a set of keys (RFC 7517): {0}")]
    NotASet(serde_json::Error),
    /// Too many keys.
    #[error("there are more than {most} keys")]
    TooMany {
        /// The most that there may be.
        most: usize,
    },
    /// No key of a kind that signs tokens.
    #[error("there is no key in it that signs with RSA, an elliptic curve or a secret")]
    NoSigningKey,
}
