//! The names of counters, derived from descriptors.

mod unhashed;

use std::hash::Hasher;

use ratekeeper_core::{Limit, Regions};
use ratekeeper_rules::{CUSTOM, Calendar, Entry, Matched, RegionMode, Rule, Visit, secret};
use ratekeeper_store::{CounterKey, HashKey};
use siphasher::sip::{SipHasher13, SipHasher24};

use crate::sip::WordHasher;
use unhashed::Words;
pub(crate) use unhashed::{UnhashedName, Unhasher};

/// Returns `secret` as answers and logs show it: a hash under `key`, and its last 4 characters where
/// at least 8 others stay hidden. It is the same on all nodes that share `key`; without the key no one
/// can look for another value of the same fingerprint, nor try out guesses.
pub(crate) fn fingerprint(key: HashKey, secret: &str) -> String {
    let mut hasher = SipHasher24::new_with_key(&key.to_bytes());
    write_text(&mut hasher, "fingerprint");
    write_text(&mut hasher, secret);
    secret::with_hash(secret, hasher.finish())
}

/// A hash of a tenant under `key`, the same on all nodes that share it: without the key no one can choose a name that is taken
/// for another.
pub(crate) fn tenant_hash(key: HashKey, entry: &str, name: &str) -> u64 {
    let mut hasher = SipHasher13::new_with_key(&key.to_bytes());
    write_text(&mut hasher, "tenant");
    write_text(&mut hasher, entry);
    write_text(&mut hasher, name);
    hasher.finish()
}

/// The part of a counter's identity that its rule gives: everything but the entries.
///
/// Quota, burst and rate are not in it, so that usage outlives a change of those.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct LimitIdentity(u64);

/// A place among the rules and the identity of a limit there, hashed. All limits of one have the same counters: the rule's,
/// those of plans and those of single tenants.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct LimitPlace(u32);

impl LimitPlace {
    /// The place that the token of a single tenant's limit begins with.
    pub(crate) const fn of_token(token: u64) -> Self {
        Self((token >> 32) as u32)
    }

    /// A token that begins with the place, and ends with the lower half of `hash`.
    const fn begin(self, hash: u64) -> u64 {
        (self.0 as u64) << 32 | hash & u32::MAX as u64
    }
}

/// Names counters.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Namer {
    hash_key: HashKey,
    /// The key of fingerprints and of tenants' hashes; [`None`] if it is the same.
    fingerprint_key: Option<HashKey>,
    /// A hasher fed nothing but the hash key.
    hasher: WordHasher,
    /// True while the store may still tell another hash key.
    is_provisional: bool,
}

impl Namer {
    pub(crate) fn new(hash_key: HashKey) -> Self {
        let word = |bytes: &[u8]| {
            bytes
                .iter()
                .rev()
                .fold(0, |word, byte| word << 8 | u64::from(*byte))
        };
        let key = hash_key.to_bytes();
        let (low, high) = key.split_at(8);
        Self {
            hash_key,
            fingerprint_key: None,
            hasher: WordHasher::new([word(low), word(high)]),
            is_provisional: false,
        }
    }

    /// The same names, with fingerprints under a key of their own if there is one.
    pub(crate) const fn with_fingerprints(self, key: Option<HashKey>) -> Self {
        Self {
            fingerprint_key: key,
            ..self
        }
    }

    /// The key of fingerprints and of tenants' hashes.
    pub(crate) fn fingerprint_key(&self) -> HashKey {
        self.fingerprint_key.unwrap_or(self.hash_key)
    }

    /// The same names, until the store has told the hash key.
    pub(crate) const fn provisional(self) -> Self {
        Self {
            is_provisional: true,
            ..self
        }
    }

    /// Returns true if the store may still tell another hash key, so that counters whose hits are owed need their unhashed
    /// names too.
    #[inline]
    pub(crate) const fn is_provisional(&self) -> bool {
        self.is_provisional
    }

    pub(crate) const fn hash_key(&self) -> HashKey {
        self.hash_key
    }

    /// The identity of `limit` in `domain`; with `calendar` if its window follows one.
    pub(crate) fn limit(
        &self,
        domain: &str,
        limit: &Limit,
        calendar: Option<&Calendar>,
    ) -> LimitIdentity {
        let mut hasher = SipHasher13::new_with_key(&self.hash_key.to_bytes());
        write_limit(&mut hasher, domain, limit, calendar);
        LimitIdentity(hasher.finish())
    }

    /// The terms on which `regions` lend each other parts of the limit of a rule, or count it together: another number where any of them differs,
    /// and never 0.
    pub(crate) fn terms(&self, rule: &Rule, limit: &Limit, regions: &Regions) -> u64 {
        let mut hasher = SipHasher13::new_with_key(&self.hash_key.to_bytes());
        let mut text = |text: &str| {
            hasher.write(text.as_bytes());
            hasher.write(&[0xff]);
        };
        text(&rule.domain);
        text(&rule.id);
        for region in regions.all() {
            text(&region.name);
            text(&region.weight.to_string());
            text(if region.is_retired { "retired" } else { "" });
        }
        text(limit.algorithm().name());
        if rule.regions == Some(RegionMode::Counted) {
            // Regions may post at intervals of their own.
            text("counted");
        }
        let numbers = [
            u64::from(regions.version()),
            regions.loan_time().get(),
            limit.quota(),
            limit.window().get(),
            limit.capacity(),
            u64::from(limit.is_strict()),
        ];
        numbers.iter().for_each(|number| text(&number.to_string()));
        hasher.finish().max(1)
    }

    /// The name of a counter under this hash key.
    pub(crate) fn counter(&self, unhashed: &UnhashedName) -> CounterKey {
        let mut limit = SipHasher13::new_with_key(&self.hash_key.to_bytes());
        limit.write(&unhashed.limit);
        let hash = |words: &[u64], last: Option<u64>| {
            let mut hasher = self.hasher;
            words
                .iter()
                .copied()
                .chain(last)
                .for_each(|word| hasher.word(word));
            hasher.finish()
        };
        CounterKey {
            subject: hash(&unhashed.subject, None),
            identity: hash(&unhashed.entries, Some(limit.finish())),
        }
    }

    /// The name that permits and reservations have for a rule and its limit. Limits that single tenants have in one place have
    /// one id: their names begin with the place, and end with a hash of what they let pass.
    pub(crate) fn token(&self, rule: &Rule, limit: Option<(LimitIdentity, Limit)>) -> u64 {
        let mut hasher = SipHasher13::new_with_key(&self.hash_key.to_bytes());
        write_text(&mut hasher, "token");
        write_text(&mut hasher, &rule.id);
        let identity = limit.map_or(0, |(identity, _)| identity.0);
        hasher.write_u64(identity);
        match limit {
            Some((identity, limit)) if rule.plan.as_deref() == Some(CUSTOM) => {
                write_amounts(&mut hasher, &limit);
                self.place(rule, identity).begin(hasher.finish())
            }
            _ => hasher.finish(),
        }
    }

    /// The place of a rule whose limit has this identity.
    pub(crate) fn place(&self, rule: &Rule, limit: LimitIdentity) -> LimitPlace {
        let mut hasher = SipHasher13::new_with_key(&self.hash_key.to_bytes());
        write_text(&mut hasher, "place");
        rule.path
            .iter()
            .for_each(|part| write_text(&mut hasher, part));
        hasher.write_u64(limit.0);
        LimitPlace::of_token(hasher.finish())
    }

    /// The prefix that the names of all subjects of a domain share.
    pub(crate) fn domain(&self, domain: &str) -> DomainIdentity {
        let mut hasher = self.hasher;
        put_text(&mut hasher, domain);
        DomainIdentity(hasher)
    }

    /// Begins the names of the counters of one descriptor.
    pub(crate) fn descriptor(&self) -> Naming {
        Naming {
            entries: self.hasher,
        }
    }
}

/// A domain, hashed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DomainIdentity(WordHasher);

/// The names of one descriptor's counters, entry by entry: limits of the same entries share
/// the work of hashing them.
pub(crate) struct Naming<W = WordHasher> {
    entries: W,
}

impl<W: Words> Naming<W> {
    /// Adds the next entry, with the node that it matched, if any.
    pub(crate) fn add(&mut self, entry: &Entry<'_>, visit: Option<&Visit<'_>>) {
        match shared_pattern(visit) {
            Some(pattern) => {
                // No value is that long, so a pattern is never mistaken for an entry.
                self.entries.word(lengths(pattern, u32::MAX as usize));
                put_words(&mut self.entries, pattern);
                // Values are shared, keys are not: a star may stand for the end of one.
                let rest = pattern.strip_prefix(entry.key);
                if !rest.is_some_and(|rest| rest.starts_with('_')) {
                    self.entries.word(lengths(entry.key, u32::MAX as usize - 1));
                    put_words(&mut self.entries, entry.key);
                }
            }
            None => {
                self.entries.word(lengths(entry.key, entry.value.len()));
                put_words(&mut self.entries, entry.key);
                put_words(&mut self.entries, entry.value);
            }
        }
    }

    /// Adds the epoch of the tenant, which begins when its usage is reset. In the first one, 0, names are as without
    /// epochs.
    fn add_epoch(&mut self, epoch: u32) {
        if epoch > 0 {
            // No key and no value is that long, so an epoch is never mistaken for an entry.
            self.entries
                .word(u64::from(u32::MAX - 2) << 32 | u64::from(epoch));
        }
    }
}

impl Naming {
    /// The same names in another epoch of their tenant.
    pub(crate) fn in_epoch(&self, epoch: u32) -> Self {
        let mut naming = Self {
            entries: self.entries,
        };
        naming.add_epoch(epoch);
        naming
    }

    /// The name of the counter that `limit` has for the entries added so far.
    pub(crate) fn counter(&self, subject: u64, limit: LimitIdentity) -> CounterKey {
        let mut hasher = self.entries;
        hasher.word(limit.0);
        CounterKey {
            subject,
            identity: hasher.finish(),
        }
    }
}

impl DomainIdentity {
    /// The first half of the names of all counters of a subject: the value of `entry`, or the
    /// pattern that it is counted under.
    pub(crate) fn subject(self, entry: &Entry<'_>, visit: Option<&Visit<'_>>) -> u64 {
        let Self(mut hasher) = self;
        put_text(&mut hasher, shared_pattern(visit).unwrap_or(entry.value));
        hasher.finish()
    }
}

/// The pattern that a matched entry's counter is shared under, if it is shared.
fn shared_pattern<'a>(visit: Option<&Visit<'a>>) -> Option<&'a str> {
    let visit = visit?;
    let shared = visit.how == Matched::Wildcard && visit.node.share_threshold();
    shared.then(|| visit.node.pattern())
}

/// Lengths go before texts, so that no two lists of texts run into the same words. Those of an
/// entry share a word: none of them reaches 4 GiB.
const fn lengths(key: &str, value: usize) -> u64 {
    (key.len() as u64) << 32 | value as u64
}

fn put_text(hasher: &mut impl Words, text: &str) {
    hasher.word(text.len() as u64);
    put_words(hasher, text);
}

/// The last word of a text that is no multiple of eight bytes long overlaps the one before; a
/// text too short for that is filled up with zeros.
#[inline]
fn put_words(hasher: &mut impl Words, text: &str) {
    let bytes = text.as_bytes();
    let (words, rest) = bytes.as_chunks::<8>();
    for word in words {
        hasher.word(u64::from_le_bytes(*word));
    }
    if !rest.is_empty() {
        hasher.word(
            bytes
                .last_chunk::<8>()
                .map_or_else(|| short(rest), |w| u64::from_le_bytes(*w)),
        );
    }
}

/// Up to seven bytes as one word, loaded by halves rather than byte by byte.
#[inline]
fn short(bytes: &[u8]) -> u64 {
    match (bytes.first_chunk::<4>(), bytes.last_chunk::<4>()) {
        (Some(first), Some(last)) => {
            u64::from(u32::from_le_bytes(*first)) | u64::from(u32::from_le_bytes(*last)) << 32
        }
        _ => bytes
            .iter()
            .rev()
            .fold(0, |word, byte| word << 8 | u64::from(*byte)),
    }
}

/// Writes all that tells apart limits of one identity.
fn write_amounts(hasher: &mut impl Hasher, limit: &Limit) {
    let numbers = [
        limit.quota(),
        limit.capacity(),
        limit.delay_max().get(),
        u64::from(limit.is_strict()),
        u64::from(limit.is_post_paid()),
        limit.max_debt().map_or(0, |debt| debt.saturating_add(1)),
        // The time of a permit is not in the identity.
        limit.window().get(),
    ];
    numbers.iter().for_each(|number| hasher.write_u64(*number));
}

/// Writes what the identity of `limit` is hashed from.
fn write_limit(hasher: &mut impl Hasher, domain: &str, limit: &Limit, calendar: Option<&Calendar>) {
    write_text(hasher, domain);
    write_text(hasher, limit.algorithm().name());
    hasher.write_u64(u64::from(limit.sub_windows()));
    match calendar {
        Some(calendar) => {
            write_text(hasher, calendar.unit().name());
            write_text(hasher, calendar.zone());
        }
        // The timeout of a permit is not a window: changing it frees no permits.
        None if limit.algorithm().holds_permits() => {}
        None => hasher.write_u64(limit.window().get()),
    }
}

fn write_text(hasher: &mut impl Hasher, text: &str) {
    hasher.write_u64(text.len() as u64);
    hasher.write(text.as_bytes());
}

/// A hash that is the same on every node and after every start, for what must not change with
/// the hash key: which subjects a gradual rollout covers.
pub(crate) fn stable_hash(rule: &str, subject: &str) -> u64 {
    let mut hasher = SipHasher13::new();
    write_text(&mut hasher, rule);
    write_text(&mut hasher, subject);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(texts: &[(&str, &str)]) -> CounterKey {
        let namer = Namer::new(HashKey::from_bytes([7; 16]));
        let mut naming = namer.descriptor();
        let entries: Vec<_> = texts
            .iter()
            .map(|(key, value)| Entry { key, value })
            .collect();
        entries.iter().for_each(|entry| naming.add(entry, None));
        naming.counter(
            namer.domain("d").subject(&entries[0], None),
            LimitIdentity(1),
        )
    }

    #[test]
    fn texts_that_run_together_have_names_of_their_own() {
        let lists: [&[(&str, &str)]; 10] = [
            &[("a", "b")],
            &[("ab", "")],
            &[("", "ab")],
            &[("a", "b"), ("c", "d")],
            &[("a", "b"), ("cd", "")],
            &[("a", "b\0")],
            &[("a", "b\0\0\0\0\0\0\0")],
            &[("a", "bbbbbbbbb")],
            &[("a", "bbbbbbbbbbbbbbbb")],
            &[("a", "bbbbbbbbbbbbbbb")],
        ];
        let names: std::collections::HashSet<_> = lists.iter().map(|list| name(list)).collect();
        assert_eq!(names.len(), lists.len());
    }

    /// Of counters of one subject, which the first half cannot tell apart.
    #[test]
    fn entries_that_run_together_have_halves_of_their_own() {
        let lists: [&[(&str, &str)]; 5] = [
            &[("a", "x"), ("k", "b")],
            &[("a", "x"), ("k", "b\0")],
            &[("a", "x"), ("kb", "")],
            &[("a", "x"), ("", "kb")],
            &[("a", "x"), ("k", ""), ("b", "")],
        ];
        let names = lists.iter().map(|list| name(list).identity);
        let names: std::collections::HashSet<_> = names.collect();
        assert_eq!(names.len(), lists.len());
    }

    #[test]
    fn each_epoch_has_names_of_its_own() {
        let namer = Namer::new(HashKey::from_bytes([7; 16]));
        let naming = namer.descriptor();
        let identity = |naming: &Naming| naming.counter(0, LimitIdentity(1)).identity;
        assert_eq!(identity(&naming.in_epoch(0)), identity(&naming));
        let epochs: std::collections::HashSet<_> = (0..3)
            .map(|epoch| identity(&naming.in_epoch(epoch)))
            .collect();
        assert_eq!(epochs.len(), 3);
    }

    #[test]
    fn one_subject_shares_the_first_half() {
        let (orders, search) = (
            name(&[("a", "x"), ("b", "1")]),
            name(&[("a", "x"), ("b", "2")]),
        );
        assert_eq!(orders.subject, search.subject);
        assert_ne!(orders.identity, search.identity);
        assert_ne!(orders.subject, name(&[("a", "y"), ("b", "1")]).subject);
    }

    #[test]
    fn another_hash_key_gives_other_names() {
        let key = |bytes: [u8; 16]| {
            let entry = Entry {
                key: "a",
                value: "b",
            };
            let namer = Namer::new(HashKey::from_bytes(bytes));
            namer.domain("d").subject(&entry, None)
        };
        assert_ne!(key([1; 16]), key([2; 16]));
        assert_ne!(HashKey::random(), HashKey::random());
    }
}
