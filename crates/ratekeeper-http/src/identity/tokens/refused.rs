//! Tokens that were not believed, and what their senders may still have checked.

use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// Tokens that are remembered, in 32 KiB.
const TOKENS: usize = 4_096;
/// Senders are kept in so many sets, by their hashes, each with a lock of its own.
const SETS: usize = 256;
/// So many senders are kept in a set.
const SENDERS: usize = 8;
/// Signatures of one sender that are found wrong at once, before its next ones are not looked at.
const BURST: u32 = 50;
/// One more for each of these spans.
const INTERVAL: Duration = Duration::from_millis(100);
/// The part of an IPv6 address that one sender has to itself.
const IPV6_PREFIX: u32 = 64;

/// Tokens whose signatures were wrong under the keys in force. Only hashes are kept: two tokens have the same one by a
/// chance of 2^-64, and nobody can look for such a pair, because the seed is random.
pub(super) struct Disbelieved {
    place: RandomState,
    tag: RandomState,
    tags: Box<[AtomicU64]>,
}

impl Disbelieved {
    pub(super) fn new() -> Self {
        Self {
            place: RandomState::new(),
            tag: RandomState::new(),
            tags: (0..TOKENS).map(|_| AtomicU64::new(0)).collect(),
        }
    }

    pub(super) fn has(&self, token: &str) -> bool {
        // Relaxed, here and below: a tag stands for itself, and nothing else is published by it.
        self.slot(token).load(Ordering::Relaxed) == self.tag(token)
    }

    pub(super) fn remember(&self, token: &str) {
        self.slot(token).store(self.tag(token), Ordering::Relaxed);
    }

    fn slot(&self, token: &str) -> &AtomicU64 {
        // The remainder is below the number of slots, on any machine.
        &self.tags[(self.place.hash_one(token) % TOKENS as u64) as usize]
    }

    /// Never 0, which is an empty slot.
    fn tag(&self, token: &str) -> u64 {
        self.tag.hash_one(token) | 1
    }
}

/// How many wrong signatures each sender has shown of late: 2,048 senders at most, of whom those go first that have shown
/// the fewest.
pub(super) struct Suspects {
    seed: RandomState,
    begun: Instant,
    sets: Box<[Mutex<[Suspect; SENDERS]>]>,
}

/// A sender, and until when what it has shown takes to be forgotten.
#[derive(Clone, Copy, Default)]
struct Suspect {
    hash: u64,
    until: Duration,
}

impl Suspects {
    pub(super) fn new() -> Self {
        Self {
            seed: RandomState::new(),
            begun: Instant::now(),
            sets: (0..SETS).map(|_| Mutex::default()).collect(),
        }
    }

    /// Whether a token of `sender` may be checked now. Those whose address nobody knows count as one sender.
    pub(super) fn may_try(&self, sender: Option<IpAddr>) -> bool {
        self.may_try_at(sender, self.begun.elapsed())
    }

    /// `count` more signatures of `sender` were wrong.
    pub(super) fn note(&self, sender: Option<IpAddr>, count: u32) {
        self.note_at(sender, count, self.begun.elapsed());
    }

    fn may_try_at(&self, sender: Option<IpAddr>, now: Duration) -> bool {
        let hash = self.hash(sender);
        let set = self.set(hash).lock();
        let known = set.iter().find(|suspect| suspect.hash == hash);
        known.is_none_or(|suspect| suspect.until <= now + INTERVAL * (BURST - 1))
    }

    fn note_at(&self, sender: Option<IpAddr>, count: u32, now: Duration) {
        let hash = self.hash(sender);
        let mut set = self.set(hash).lock();
        let known = set.iter().position(|suspect| suspect.hash == hash);
        let place = known.or_else(|| {
            let places = set.iter().enumerate();
            places
                .min_by_key(|(_, suspect)| suspect.until)
                .map(|(place, _)| place)
        });
        if let Some(suspect) = place.and_then(|place| set.get_mut(place)) {
            let before = match known {
                Some(_) => suspect.until.max(now),
                None => now,
            };
            let until = before + INTERVAL * count;
            *suspect = Suspect { hash, until };
        }
    }

    fn hash(&self, sender: Option<IpAddr>) -> u64 {
        self.seed
            .hash_one(sender.map(|sender| match sender.to_canonical() {
                IpAddr::V4(address) => u128::from(address.to_bits()),
                IpAddr::V6(address) => {
                    address.to_bits() >> (128 - IPV6_PREFIX) << (128 - IPV6_PREFIX)
                }
            }))
    }

    fn set(&self, hash: u64) -> &Mutex<[Suspect; SENDERS]> {
        &self.sets[(hash % SETS as u64) as usize]
    }
}

impl fmt::Debug for Disbelieved {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Disbelieved").finish_non_exhaustive()
    }
}

impl fmt::Debug for Suspects {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Suspects").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(text: &str) -> Option<IpAddr> {
        Some(text.parse().expect("an address"))
    }

    #[test]
    fn a_sender_of_many_wrong_signatures_waits() {
        let suspects = Suspects::new();
        let (one, other) = (address("192.0.2.1"), address("192.0.2.2"));
        let start = Duration::from_secs(100);
        for number in 0..BURST {
            assert!(suspects.may_try_at(one, start), "{number}");
            suspects.note_at(one, 1, start);
        }
        assert!(!suspects.may_try_at(one, start));
        assert!(suspects.may_try_at(other, start));
        assert!(suspects.may_try_at(None, start));
        let almost = start + INTERVAL - Duration::from_micros(1);
        assert!(!suspects.may_try_at(one, almost));
        assert!(suspects.may_try_at(one, start + INTERVAL));
    }

    #[test]
    fn a_network_of_ipv6_is_one_sender() {
        let suspects = Suspects::new();
        suspects.note_at(address("2001:db8:1:2::1"), BURST, Duration::ZERO);
        assert!(!suspects.may_try_at(address("2001:db8:1:2:ffff::9"), Duration::ZERO));
        assert!(suspects.may_try_at(address("2001:db8:1:3::1"), Duration::ZERO));
    }

    #[test]
    fn a_wrong_token_is_known_again() {
        let disbelieved = Disbelieved::new();
        assert!(!disbelieved.has("a"));
        disbelieved.remember("a");
        assert!(disbelieved.has("a"));
        assert!(!disbelieved.has("b"));
    }
}
