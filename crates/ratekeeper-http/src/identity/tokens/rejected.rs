//! Remembers rejected tokens, and limits the verifications for their senders.

use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// Remembered tokens, in 32 KiB.
const TOKENS: usize = 4_096;
/// The number of sets; a sender's hash selects its set, and each set has its own lock.
const SETS: usize = 256;
/// Senders per set.
const SENDERS: usize = 8;
/// Wrong signatures that a sender may have at once, before its next tokens are not verified.
const BURST: u32 = 50;
/// Time for one more.
const INTERVAL: Duration = Duration::from_millis(100);
/// The prefix of an IPv6 address that belongs to one sender.
const IPV6_PREFIX: u32 = 64;

/// Tokens whose signatures were wrong with the keys in force. Only hashes are kept: two tokens
/// collide with a probability of 2^-64, and such a pair cannot be searched for, because the seed is
/// random.
pub(super) struct RejectedTokens {
    place: RandomState,
    tag: RandomState,
    tags: Box<[AtomicU64]>,
}

impl RejectedTokens {
    pub(super) fn new() -> Self {
        Self {
            place: RandomState::new(),
            tag: RandomState::new(),
            tags: (0..TOKENS).map(|_| AtomicU64::new(0)).collect(),
        }
    }

    pub(super) fn has(&self, token: &str) -> bool {
        // Relaxed, here and below: a tag stands alone and publishes no other data.
        self.slot(token).load(Ordering::Relaxed) == self.tag(token)
    }

    pub(super) fn remember(&self, token: &str) {
        self.slot(token).store(self.tag(token), Ordering::Relaxed);
    }

    #[expect(
        clippy::cast_possible_truncation,
        reason = "the remainder is below the number of slots"
    )]
    fn slot(&self, token: &str) -> &AtomicU64 {
        &self.tags[(self.place.hash_one(token) % TOKENS as u64) as usize]
    }

    /// A token's tag; never 0, which marks an empty slot.
    fn tag(&self, token: &str) -> u64 {
        self.tag.hash_one(token) | 1
    }
}

/// Recent wrong signatures by sender: at most 2,048 senders, of whom those with the fewest are
/// evicted first.
pub(super) struct Suspects {
    seed: RandomState,
    begun: Instant,
    sets: Box<[Mutex<[Suspect; SENDERS]>]>,
}

/// A sender, and the time at which its wrong signatures will be forgotten.
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

    /// Returns true if a token from `sender` may be verified now. Senders without a known address
    /// count as one.
    pub(super) fn may_try(&self, sender: Option<IpAddr>) -> bool {
        self.may_try_at(sender, self.begun.elapsed())
    }

    /// Records `count` more wrong signatures from `sender`.
    pub(super) fn record(&self, sender: Option<IpAddr>, count: u32) {
        self.record_at(sender, count, self.begun.elapsed());
    }

    fn may_try_at(&self, sender: Option<IpAddr>, now: Duration) -> bool {
        let hash = self.hash(sender);
        let set = self.set(hash).lock();
        let known = set.iter().find(|suspect| suspect.hash == hash);
        known.is_none_or(|suspect| suspect.until <= now + INTERVAL * (BURST - 1))
    }

    fn record_at(&self, sender: Option<IpAddr>, count: u32, now: Duration) {
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

    #[expect(
        clippy::cast_possible_truncation,
        reason = "the remainder is below the number of sets"
    )]
    fn set(&self, hash: u64) -> &Mutex<[Suspect; SENDERS]> {
        &self.sets[(hash % SETS as u64) as usize]
    }
}

impl fmt::Debug for RejectedTokens {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RejectedTokens").finish_non_exhaustive()
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
            suspects.record_at(one, 1, start);
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
        suspects.record_at(address("2001:db8:1:2::1"), BURST, Duration::ZERO);
        assert!(!suspects.may_try_at(address("2001:db8:1:2:ffff::9"), Duration::ZERO));
        assert!(suspects.may_try_at(address("2001:db8:1:3::1"), Duration::ZERO));
    }

    #[test]
    fn a_wrong_token_is_known_again() {
        let rejected = RejectedTokens::new();
        assert!(!rejected.has("a"));
        rejected.remember("a");
        assert!(rejected.has("a"));
        assert!(!rejected.has("b"));
    }
}
