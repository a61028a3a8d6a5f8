//! Names of counters before they are hashed, for the time before the hash key is known.
//!
//! ```text
//!   words of the subject, words of the entries, bytes of the limit  ->  UnhashedName
//!   UnhashedName + hash key                                         ->  CounterKey
//! ```

use std::fmt;
use std::hash::Hasher;

use ratekeeper_core::Limit;
use ratekeeper_rules::{Calendar, Entry, Visit};

use super::{Naming, put_text, shared_pattern, write_limit};
use crate::sip::WordHasher;

/// A place for the words that a name is hashed from.
pub(crate) trait Words {
    /// Adds a word.
    fn word(&mut self, word: u64);
}

impl Words for WordHasher {
    #[inline]
    fn word(&mut self, word: u64) {
        Self::word(self, word);
    }
}

impl Words for Vec<u64> {
    fn word(&mut self, word: u64) {
        self.push(word);
    }
}

/// The input of the hashes that name a counter, by which it can be named under any hash key.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct UnhashedName {
    pub(super) subject: Box<[u64]>,
    /// All that comes before the identity of the limit.
    pub(super) entries: Box<[u64]>,
    pub(super) limit: Box<[u8]>,
}

impl UnhashedName {
    /// The bytes that it takes.
    pub(crate) fn size(&self) -> usize {
        size_of::<Self>()
            + size_of_val(&*self.subject)
            + size_of_val(&*self.entries)
            + self.limit.len()
    }
}

/// Without the values, which may be secrets.
impl fmt::Debug for UnhashedName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UnhashedName").finish_non_exhaustive()
    }
}

/// Makes the unhashed names of one descriptor's counters, in the steps in which [`Namer`](super::Namer) makes hashed ones.
pub(crate) struct Unhasher {
    subject: Vec<u64>,
    naming: Naming<Vec<u64>>,
}

impl Unhasher {
    /// Begins with the subject: the value of `entry`, or the pattern that it is counted under.
    pub(crate) fn new(domain: &str, entry: &Entry<'_>, visit: Option<&Visit<'_>>) -> Self {
        let mut subject = Vec::new();
        put_text(&mut subject, domain);
        put_text(&mut subject, shared_pattern(visit).unwrap_or(entry.value));
        Self {
            subject,
            naming: Naming {
                entries: Vec::new(),
            },
        }
    }

    /// Adds the next entry, with the node that it matched, if any.
    pub(crate) fn add(&mut self, entry: &Entry<'_>, visit: Option<&Visit<'_>>) {
        self.naming.add(entry, visit);
    }

    /// The name of the counter of `limit` in an epoch of its tenant.
    pub(crate) fn name(
        mut self,
        epoch: u32,
        domain: &str,
        limit: &Limit,
        calendar: Option<&Calendar>,
    ) -> UnhashedName {
        self.naming.add_epoch(epoch);
        let mut bytes = Bytes(Vec::new());
        write_limit(&mut bytes, domain, limit, calendar);
        UnhashedName {
            subject: self.subject.into(),
            entries: self.naming.entries.into(),
            limit: bytes.0.into(),
        }
    }
}

/// Keeps what is written to it.
struct Bytes(Vec<u8>);

impl Hasher for Bytes {
    fn write(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
    }

    fn write_u64(&mut self, number: u64) {
        // As SipHash reads it.
        self.write(&number.to_le_bytes());
    }

    /// Nothing is hashed here.
    fn finish(&self) -> u64 {
        0
    }
}

#[cfg(test)]
mod tests {
    use ratekeeper_core::{Algorithm, LimitSpec, Micros};

    use super::*;

    fn name(values: &[&str]) -> UnhashedName {
        let entry = |value| Entry { key: "user", value };
        let mut unhasher = Unhasher::new("domain", &entry(values[0]), None);
        values
            .iter()
            .for_each(|value| unhasher.add(&entry(value), None));
        let spec = LimitSpec::new(Algorithm::FixedWindow, 9, Micros::from_secs(1));
        let limit = Limit::try_new(spec).expect("a valid limit");
        unhasher.name(0, "domain", &limit, None)
    }

    #[test]
    fn its_size_is_that_of_all_its_parts() {
        let parts = |name: &UnhashedName| {
            [
                8 * name.subject.len(),
                8 * name.entries.len(),
                name.limit.len(),
            ]
        };
        for values in [&["a"][..], &["a", "a long value of a second entry"]] {
            let name = name(values);
            let parts = parts(&name);
            assert!(parts.iter().all(|part| *part > 0), "{parts:?}");
            assert_eq!(
                name.size(),
                size_of::<UnhashedName>() + parts.iter().sum::<usize>()
            );
        }
    }

    #[test]
    fn it_is_shown_without_its_values() {
        assert_eq!(format!("{:?}", name(&["secret"])), "UnhashedName { .. }");
    }
}
