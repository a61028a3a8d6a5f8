//! From descriptors to the names of counters.

use std::hash::Hasher;

use ratekeeper_core::Limit;
use ratekeeper_rules::{Calendar, Entry, Matched, Visit};
use ratekeeper_store::CounterKey;
use siphasher::sip::SipHasher13;
use siphasher::sip128::{Hasher128, SipHasher13 as SipHasher13Wide};
use smallvec::SmallVec;

/// The secret under which counters are named: without it nobody can choose keys that collide.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Seed([u8; 16]);

impl Seed {
    /// A seed that nobody knows, from the system's randomness (by way of the standard library's
    /// own hash seeds).
    #[must_use]
    pub fn random() -> Self {
        use std::hash::{BuildHasher, RandomState};
        let word = || RandomState::new().build_hasher().finish().to_le_bytes();
        let mut seed = [0; 16];
        seed[..8].copy_from_slice(&word());
        seed[8..].copy_from_slice(&word());
        Self(seed)
    }

    /// A seed that was kept, so that counters kept with it are found again.
    #[must_use]
    pub const fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }

    /// The seed, to be kept as secret as the counters.
    #[must_use]
    pub const fn to_bytes(self) -> [u8; 16] {
        self.0
    }
}

impl std::fmt::Debug for Seed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Seed(secret)")
    }
}

/// The part of a counter's identity that its rule gives: everything but the entries.
///
/// Quota, burst and rate are not in it, so that usage outlives a change of those.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct LimitIdentity([u8; 16]);

/// Names counters.
#[derive(Clone, Debug)]
pub(crate) struct Namer {
    seed: Seed,
    hasher: SipHasher13,
}

/// What a descriptor's entries are hashed from. Entries of common lengths need no allocation.
type Buffer = SmallVec<[u8; 256]>;

impl Namer {
    pub(crate) fn new(seed: Seed) -> Self {
        Self {
            seed,
            hasher: SipHasher13::new_with_key(&seed.0),
        }
    }

    pub(crate) const fn seed(&self) -> Seed {
        self.seed
    }

    /// The identity of `limit` in `domain`; with `calendar` if its window follows one.
    pub(crate) fn limit(
        &self,
        domain: &str,
        limit: &Limit,
        calendar: Option<&Calendar>,
    ) -> LimitIdentity {
        let mut hasher = SipHasher13Wide::new_with_key(&self.seed.0);
        write_text(&mut hasher, domain);
        write_text(&mut hasher, limit.algorithm().name());
        hasher.write_u32(limit.sub_windows());
        match calendar {
            Some(calendar) => {
                write_text(&mut hasher, calendar.unit().name());
                write_text(&mut hasher, calendar.zone());
            }
            // The timeout of a permit is no window: changing it frees nobody's permits.
            None if limit.algorithm() == ratekeeper_core::Algorithm::Concurrency => {}
            None => hasher.write_u64(limit.window().get()),
        }
        LimitIdentity(hasher.finish128().as_bytes())
    }

    /// The name of the counter of `limit` for `entries`, which `visits` matched (as far as they
    /// go; a request's own limit matches nothing). One subject's counters share the first half.
    pub(crate) fn counter(
        &self,
        domain: &str,
        limit: LimitIdentity,
        entries: &[Entry<'_>],
        visits: &[Visit<'_>],
        subject: usize,
    ) -> CounterKey {
        let part = |index: usize| Part::of(&entries[index], visits.get(index));
        let mut buffer = Buffer::new();
        put_text(&mut buffer, domain);
        if subject < entries.len() {
            put_text(&mut buffer, part(subject).subject());
        }
        let subject = self.hasher.hash(&buffer);
        buffer.clear();
        buffer.extend_from_slice(&limit.0);
        (0..entries.len()).for_each(|index| part(index).put(&mut buffer));
        CounterKey {
            subject,
            identity: self.hasher.hash(&buffer),
        }
    }
}

/// What one entry puts into the name: itself, or the pattern that its counter is shared under.
enum Part<'a> {
    Entry(&'a Entry<'a>),
    Pattern(&'a str),
}

impl<'a> Part<'a> {
    fn of(entry: &'a Entry<'a>, visit: Option<&Visit<'a>>) -> Self {
        match visit {
            Some(visit) if visit.how == Matched::Wildcard && visit.node.share_threshold() => {
                Self::Pattern(visit.node.pattern())
            }
            _ => Self::Entry(entry),
        }
    }

    const fn subject(&self) -> &'a str {
        match self {
            Self::Entry(entry) => entry.value,
            Self::Pattern(pattern) => pattern,
        }
    }

    fn put(&self, buffer: &mut Buffer) {
        match self {
            Self::Entry(entry) => {
                put_text(buffer, entry.key);
                put_text(buffer, entry.value);
            }
            Self::Pattern(pattern) => {
                // No text is so long: a pattern is never taken for an entry.
                buffer.extend_from_slice(&u64::MAX.to_le_bytes());
                put_text(buffer, pattern);
            }
        }
    }
}

/// Length first, so that no two lists of texts run into the same bytes.
fn put_text(buffer: &mut Buffer, text: &str) {
    buffer.extend_from_slice(&(text.len() as u64).to_le_bytes());
    buffer.extend_from_slice(text.as_bytes());
}

fn write_text(hasher: &mut impl Hasher, text: &str) {
    hasher.write_u64(text.len() as u64);
    hasher.write(text.as_bytes());
}

/// A hash that is the same on every node and after every start, for what must not change with
/// the seed: which subjects a gradual rollout covers.
pub(crate) fn stable_hash(rule: &str, subject: &str) -> u64 {
    let mut hasher = SipHasher13::new();
    write_text(&mut hasher, rule);
    write_text(&mut hasher, subject);
    hasher.finish()
}
