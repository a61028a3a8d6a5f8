//! One token of the admin API.

use std::io;
use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};

use ratekeeper_core::formats::OtherVersion;
use ratekeeper_quota::FleetToken;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::TOKENS_MAX;
use crate::access::Role;
use crate::data_dir::atomic_file::BadFile;

/// The beginning of each token, by which scanners for leaked secrets know it.
pub(super) const PREFIX: &str = "rk_admin_";

/// A token, without its secret.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AdminToken {
    /// The name of its holder, by which it is revoked.
    pub name: Box<str>,
    /// The role of its holder.
    pub role: Role,
    /// The SHA-256 of the token, in hexadecimal digits.
    pub sha256: Box<str>,
    /// The time it was made, in seconds since 1970.
    pub created_at: u64,
}

/// The reason why tokens cannot be made, listed or revoked.
#[derive(Debug, thiserror::Error)]
pub enum AdminTokenError {
    /// A file cannot be read or written.
    #[error("cannot use {}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// The file of the tokens is not one.
    #[error("{} is damaged; move it away and make new tokens", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// The error at its place.
        source: serde_json::Error,
    },
    /// Another version of Ratekeeper wrote the file.
    #[error("{}: {version}", path.display())]
    Version {
        /// The file.
        path: PathBuf,
        /// Its version.
        version: OtherVersion,
    },
    /// The name is taken.
    #[error("there is a token for {0:?} already; revoke it first")]
    Taken(Box<str>),
    /// The name is empty, too long, or has characters that do not print.
    #[error("a name has 1 to 100 characters, all of which print")]
    Name,
    /// No token has the name.
    #[error("there is no token for {0:?}")]
    Unknown(Box<str>),
    /// The token is refused from now on, but nothing remembers that it was revoked.
    #[error(
        "the token of {name:?} is revoked on this node, but that cannot be kept: if other nodes have it, revoke it there \
         before they use a quota database"
    )]
    NotKept {
        /// The name of its holder.
        name: Box<str>,
        /// The reason.
        source: Box<AdminTokenError>,
    },
    /// There are 1,000 already.
    #[error("there are {TOKENS_MAX} tokens already")]
    TooMany,
    /// The system has no random numbers.
    #[error("the system provides no random numbers")]
    Random(#[source] getrandom::Error),
}

impl AdminToken {
    /// Makes a token for a holder. Returns it without its secret, and the secret, which is kept nowhere.
    ///
    /// # Errors
    /// The name is not one, or there are no random numbers.
    pub fn generate(name: &str, role: Role) -> Result<(Self, String), AdminTokenError> {
        let is_printed = |c: char| !c.is_control();
        if name.is_empty() || name.chars().count() > 100 || !name.chars().all(is_printed) {
            return Err(AdminTokenError::Name);
        }
        let mut secret = [0; 32];
        getrandom::fill(&mut secret).map_err(AdminTokenError::Random)?;
        let secret = format!("{PREFIX}{}", hex::encode(secret));
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let token = Self {
            name: name.into(),
            role,
            sha256: hex::encode(Sha256::digest(&secret)).into(),
            created_at: now.map_or(0, |since| since.as_secs()),
        };
        Ok((token, secret))
    }

    /// The token as a quota database has it; [`None`] if it has a role that is not known here.
    #[must_use]
    pub fn of_fleet(token: &FleetToken) -> Option<Self> {
        Some(Self {
            name: token.name.clone(),
            role: token.role.parse().ok()?,
            sha256: token.sha256.clone(),
            created_at: token.created_at,
        })
    }
}

impl AdminTokenError {
    pub(super) fn of_file(path: PathBuf, bad: BadFile) -> Self {
        match bad {
            BadFile::Io(source) => Self::Io { path, source },
            BadFile::Json(source) => Self::Damaged { path, source },
            BadFile::Version(version) => Self::Version { path, version },
        }
    }
}

impl From<AdminToken> for FleetToken {
    fn from(token: AdminToken) -> Self {
        Self {
            name: token.name,
            role: token.role.name().into(),
            sha256: token.sha256,
            created_at: token.created_at,
        }
    }
}

pub(in crate::access) fn from_hex(text: &str) -> Option<[u8; 32]> {
    let mut bytes = [0; 32];
    hex::decode_to_slice(text, &mut bytes).ok()?;
    Some(bytes)
}
