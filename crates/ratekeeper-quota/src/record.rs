//! Tenants as the quota store keeps them, and who changes them.

use ratekeeper_core::Timestamp;
use ratekeeper_rules::{TenantHash, TenantKey, TenantQuotas, secret};

/// A tenant of a domain.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct TenantId {
    /// The domain.
    pub domain: String,
    /// The keyed hash of the tenant's value.
    pub hash: TenantHash,
    /// The value; of a secret one only the end, as `…cdef`.
    pub shown: String,
}

/// The form in which a tenant is shown of whose value nothing may be told.
pub const HIDDEN: &str = "…";

/// The characters of a secret value that are shown.
const SHOWN_OF_SECRET: usize = 4;

impl TenantId {
    /// The key of its row.
    pub(crate) fn key(&self) -> (&str, TenantHash) {
        (&self.domain, self.hash)
    }

    /// The tenant whose entry has this value. Of a secret value only the hash and the last characters are
    /// kept.
    #[must_use]
    pub fn of_value(domain: &str, value: &str, is_secret: bool, key: &TenantKey) -> Self {
        let shown = match is_secret {
            true => secret::end(value),
            false => printable(value),
        };
        Self {
            domain: domain.to_owned(),
            hash: key.hash(value),
            shown,
        }
    }

    /// The tenant with this hash, whose value is not known.
    #[must_use]
    pub fn of_hash(domain: &str, hash: TenantHash) -> Self {
        Self {
            domain: domain.to_owned(),
            hash,
            shown: HIDDEN.to_owned(),
        }
    }
}

/// A tenant in the quota store.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct TenantRecord {
    /// The tenant.
    pub id: TenantId,
    /// Its plans and overrides.
    pub quotas: TenantQuotas,
    /// The number of the change that made it so; grows with every change of any tenant.
    pub version: u64,
    /// The time at which it was first put.
    pub created_at: Timestamp,
    /// The time of the last change.
    pub updated_at: Timestamp,
}

/// The one who makes a change, for the audit trail.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Editor {
    /// The name.
    pub name: String,
    /// The address from which the change came.
    pub source: String,
    /// The id of the request.
    pub request_id: String,
}

/// The state that a tenant has to be in for a change to take place.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Precondition {
    /// Any state.
    #[default]
    Any,
    /// The quota store does not have it (`If-None-Match: *`).
    Absent,
    /// The quota store has it (`If-Match: *`).
    Present,
    /// It is in this version (`If-Match`).
    Version(u64),
}

impl Precondition {
    /// Returns true if a tenant in version `current` is as required.
    pub(crate) fn holds(self, current: Option<u64>) -> bool {
        match self {
            Self::Any => true,
            Self::Absent => current.is_none(),
            Self::Present => current.is_some(),
            Self::Version(version) => current == Some(version),
        }
    }
}

/// The result of a change.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Written {
    /// The tenant as it is now.
    pub record: TenantRecord,
    /// The plans and overrides that it had before.
    pub before: TenantQuotas,
    /// True if the quota store had heard of it before, be it that it was deleted since.
    pub was_known: bool,
    /// True if the quota store did not have it before.
    pub is_new: bool,
    /// False if it was so already; then nothing was written.
    pub is_changed: bool,
}

/// A tenant that was deleted.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Deleted {
    /// The tenant as it was.
    pub record: TenantRecord,
    /// The number of the change that deleted it.
    pub version: u64,
}

/// The form in which a secret value is shown that ends so.
pub(crate) fn shown_end(end: &str) -> String {
    let hidden = end.chars().count().saturating_sub(SHOWN_OF_SECRET);
    std::iter::once('…')
        .chain(end.chars().skip(hidden))
        .collect()
}

/// The text without control characters, of which databases do not take all.
pub(crate) fn printable(text: &str) -> String {
    let shown = |character: char| match character.is_control() {
        true => char::REPLACEMENT_CHARACTER,
        false => character,
    };
    text.chars().map(shown).collect()
}
