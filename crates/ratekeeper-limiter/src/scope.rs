//! The text by which operators and callers know a descriptor, without its secrets.

use std::fmt;
use std::sync::Arc;

use ratekeeper_rules::Entry;
use ratekeeper_rules::secret::is_secret_by_default;
use smallvec::SmallVec;

use crate::Snapshot;

/// A descriptor as text: `api_key:~1f0c83aa5b92d07e:endpoint:POST /orders`.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Scope {
    text: String,
    /// The end of each entry in the text.
    ends: SmallVec<[usize; 4]>,
    /// The number of the entry that names the tenant; the first one where no entry does.
    tenant: usize,
    /// The value of that entry, if it is a secret.
    secret: Option<SecretValue>,
}

/// A secret value that stays in memory: it shows as nothing.
#[derive(Clone, PartialEq, Eq)]
pub struct SecretValue(Arc<str>);

impl SecretValue {
    /// The value.
    #[must_use]
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for SecretValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a secret")
    }
}

impl Scope {
    /// The whole descriptor.
    #[must_use]
    pub fn into_text(self) -> String {
        self.text
    }

    /// A copy of the whole descriptor.
    #[must_use]
    pub fn text(&self) -> String {
        self.text.clone()
    }

    /// The first `depth` entries, or all if there are fewer.
    #[must_use]
    pub fn up_to(&self, depth: usize) -> &str {
        let last = depth.min(self.ends.len()).checked_sub(1);
        let end = last.and_then(|last| self.ends.get(last));
        end.and_then(|end| self.text.get(..*end))
            .unwrap_or_default()
    }

    /// The value of the tenant's entry, if it is a secret.
    pub(crate) const fn secret(&self) -> Option<&SecretValue> {
        self.secret.as_ref()
    }

    /// Returns true if the [subject](Self::subject) is among the first `depth` entries.
    pub(crate) const fn has_subject_in(&self, depth: usize) -> bool {
        self.tenant < depth
    }

    /// The entry that names the tenant, or the first one where no entry does: `api_key:~1f0c83aa5b92d07e`.
    #[must_use]
    pub fn subject(&self) -> &str {
        let start = match self.tenant.checked_sub(1) {
            // After the colon.
            Some(before) => self.ends.get(before).map_or(0, |end| end + 1),
            None => 0,
        };
        let end = self.ends.get(self.tenant).copied();
        end.and_then(|end| self.text.get(start..end))
            .unwrap_or_default()
    }
}

impl Snapshot {
    /// The entries of a descriptor of `domain`; secret values are fingerprints.
    #[must_use]
    pub fn scope(&self, domain: &str, entries: &[Entry<'_>]) -> Scope {
        let rules = self.rules().domain(domain);
        let tenant = rules.and_then(|rules| rules.tenant_at(entries));
        let mut scope = Scope {
            tenant: tenant.unwrap_or(0),
            ..Scope::default()
        };
        for (number, entry) in entries.iter().enumerate() {
            let is_secret = match rules {
                Some(rules) => rules.is_secret(entry.key),
                None => is_secret_by_default(entry.key),
            };
            if !scope.text.is_empty() {
                scope.text.push(':');
            }
            scope.text.push_str(entry.key);
            scope.text.push(':');
            if is_secret && number == scope.tenant {
                scope.secret = Some(SecretValue(entry.value.into()));
            }
            match is_secret {
                true => scope.text.push_str(&self.fingerprint(entry.value)),
                false => scope.text.push_str(entry.value),
            }
            scope.ends.push(scope.text.len());
        }
        scope
    }
}
