//! The secret that counters are named by, and the protocol by which all nodes come to share it.
//!
//! It is made once and lies in Redis under one key, where each node puts it back and compares it
//! each second. A node counts nothing before it knows the secret, and makes one only if no other
//! node can be about to put one back. If two meet all the same, the older one wins, for all nodes
//! ([`Minted`]). In a cluster every shard but the one of that key has a copy, under a key that lies
//! there, and so has every further store of a service: a node that starts while the first store's
//! server is away, or has come back empty, finds the secret that all others name counters by. The
//! first key of the first store is authoritative, and copies are made to agree with it. Copies in
//! further stores have keys that are nobody's first: another service may have its own secret there,
//! and must not be given ours.

mod minted;

use std::collections::BTreeSet;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::Mutex;
use ratekeeper_core::Timestamp;
use ratekeeper_store::HashKey;
use tokio::sync::watch;
use tracing::warn;

pub(crate) use minted::Minted;

use crate::script::slot_of_key;
use crate::shard::Shard;
use crate::topology::{SlotMap, Topology};

/// Names tried for the key of a copy: enough for a shard that has a single slot.
const NAMES_MAX: u32 = 1 << 18;

/// 128 bits.
pub(crate) type Secret = [u8; 16];

/// The key under which a server keeps the secret.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum SeedKey {
    /// The authoritative key.
    First(String),
    /// A copy, for when the authoritative key cannot be read.
    Copy(String),
}

impl SeedKey {
    /// Returns the key on `shard`, given the `map` of its store, which may be the first one;
    /// [`None`] if the shard serves nothing.
    pub(crate) fn of(
        prefix: &str,
        shard: &Arc<Shard>,
        map: &SlotMap,
        is_first_store: bool,
    ) -> Option<Self> {
        if !map.serves(shard) {
            // No name would match, and trying all of them would keep the thread busy.
            return None;
        }
        let lies_there = |key: &str| {
            let owner = map.shard(slot_of_key(key));
            owner.is_some_and(|it| Arc::ptr_eq(it, shard))
        };
        let first = format!("{prefix}seed");
        if is_first_store && lies_there(&first) {
            return Some(Self::First(first));
        }
        let copy = match is_first_store {
            true => first,
            false => format!("{first}:copy"),
        };
        let mut copies = (0..NAMES_MAX).map(|number| format!("{copy}:{number}"));
        copies.find(|key| lies_there(key)).map(Self::Copy)
    }

    pub(crate) fn name(&self) -> &str {
        match self {
            Self::First(key) | Self::Copy(key) => key,
        }
    }
}

/// This node's knowledge of the secret, for all of its stores.
pub(crate) struct Seed {
    known: Mutex<Known>,
    /// The secret, once it is known, for those waiting for it.
    adopted: watch::Sender<Option<Secret>>,
    /// The same in two words, for the comparison in each decision: a half-written change equals neither secret.
    words: [AtomicU64; 2],
    /// True once it is known, for the check in each decision.
    is_adopted: AtomicBool,
    /// The number of times another secret than the one in use was found at the authoritative key.
    conflicts: AtomicU64,
    /// True if the secret is a setting, so that it lies in no server.
    pub(crate) is_setting: bool,
    /// The topologies of the stores whose counters are named by it.
    stores: Box<[Arc<Topology>]>,
}

/// A store's part in sharing the secret.
#[derive(Clone, Debug)]
pub(crate) struct Share {
    pub(crate) seed: Arc<Seed>,
    /// True if the store's secret is authoritative.
    pub(crate) is_first: bool,
}

enum Known {
    /// Nothing: this secret is proposed if there is none.
    Proposal(Secret),
    /// A copy's secret, and the servers with differing copies.
    Copied(Minted, BTreeSet<Box<str>>),
    /// The authoritative secret.
    Agreed(Minted),
}

/// The result of reading the secret in one place.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Heard {
    /// It is the one that this node uses, perhaps from now on.
    Same,
    /// It is a copy that differs, while the authoritative secret is not known.
    Undecided,
    /// It is a different one: this one has to replace it.
    PutBack(Minted),
}

/// Without the secret.
impl std::fmt::Debug for Seed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Seed")
            .field("known", &*self.known.lock())
            .field("is_setting", &self.is_setting)
            .finish_non_exhaustive()
    }
}

/// As above.
impl std::fmt::Debug for Known {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Proposal(_) => "Proposal",
            Self::Copied(..) => "Copied",
            Self::Agreed(_) => "Agreed",
        })
    }
}

impl Seed {
    pub(crate) fn new(setting: Option<Secret>, stores: Box<[Arc<Topology>]>) -> Self {
        let known = match setting {
            Some(secret) => Known::Agreed(Minted::undated(secret)),
            None => Known::Proposal(random()),
        };
        Self {
            known: Mutex::new(known),
            adopted: watch::Sender::new(setting),
            words: words(setting.unwrap_or_default()).map(AtomicU64::new),
            is_adopted: AtomicBool::new(setting.is_some()),
            conflicts: AtomicU64::new(0),
            is_setting: setting.is_some(),
            stores,
        }
    }

    /// The secret; [`None`] before any server has told it.
    pub(crate) fn adopted(&self) -> Option<Secret> {
        *self.adopted.borrow()
    }

    /// Waits for a secret other than `known`, and returns it.
    pub(crate) async fn other_than(&self, known: Secret) -> Secret {
        let mut adopted = self.adopted.subscribe();
        let is_other = |secret: &Option<Secret>| secret.is_some_and(|it| it != known);
        let found = adopted.wait_for(is_other).await.ok();
        match found.and_then(|it| *it) {
            Some(secret) => secret,
            // The sender lives as long as `self`.
            None => std::future::pending().await,
        }
    }

    pub(crate) fn is_adopted(&self) -> bool {
        // Acquire: see `adopt`.
        self.is_adopted.load(Ordering::Acquire)
    }

    /// Returns true if counters named by `key` may be counted: it is the secret that all nodes
    /// have, as far as is known. Without `key`, the secret has to be known only if counters lie in
    /// several places.
    pub(crate) fn admits(&self, key: Option<HashKey>) -> bool {
        // Relaxed: a decision that sees the previous secret is as good as one made a moment earlier.
        let is = |(known, word): (&AtomicU64, u64)| known.load(Ordering::Relaxed) == word;
        match key {
            Some(key) => self.is_adopted() && self.words.iter().zip(words(key.to_bytes())).all(is),
            None => self.is_adopted() || !self.is_shared(),
        }
    }

    /// Returns true if the authoritative secret is known, and not just a copy.
    pub(crate) fn is_agreed(&self) -> bool {
        matches!(*self.known.lock(), Known::Agreed(_))
    }

    /// The number of times another secret than the one in use was found at the authoritative key.
    pub(crate) fn conflicts(&self) -> u64 {
        self.conflicts.load(Ordering::Relaxed)
    }

    /// Returns true if counters lie in several places.
    fn is_shared(&self) -> bool {
        self.stores.len() > 1 || self.stores.iter().any(|it| it.is_cluster())
    }

    /// The servers whose copies differ from the first one seen, while the authoritative secret is not known.
    pub(crate) fn differing(&self) -> Vec<Box<str>> {
        match &*self.known.lock() {
            Known::Copied(_, differing) => differing.iter().cloned().collect(),
            Known::Proposal(_) | Known::Agreed(_) => Vec::new(),
        }
    }

    /// Returns the secret to store at `key` if it is empty, `now` by the clock of its server. A
    /// node that knows none proposes its own where it may.
    pub(crate) fn offer(&self, key: &SeedKey, may_propose: bool, now: Timestamp) -> Option<Minted> {
        match (&*self.known.lock(), key) {
            (Known::Proposal(secret), SeedKey::First(_)) if may_propose => Some(Minted {
                at: now,
                secret: *secret,
            }),
            (Known::Proposal(_), _) => None,
            (Known::Copied(minted, _) | Known::Agreed(minted), _) => Some(*minted),
        }
    }

    /// Takes in the secret found at `key` of `server`, and returns what has to be done about it.
    pub(crate) fn hear(&self, key: &SeedKey, server: &str, there: Minted) -> Heard {
        let mut known = self.known.lock();
        match (key, &mut *known) {
            (SeedKey::First(_), Known::Agreed(ours)) if ours.secret != there.secret => {
                let ours = *ours;
                self.conflicts.fetch_add(1, Ordering::Relaxed);
                let is_theirs = there.prevails_over(&ours);
                tell_conflict(server, is_theirs);
                if !is_theirs {
                    return Heard::PutBack(ours);
                }
                *known = Known::Agreed(there);
            }
            (SeedKey::First(_), known) => *known = Known::Agreed(there),
            (SeedKey::Copy(_), known @ Known::Proposal(_)) => {
                *known = Known::Copied(there, BTreeSet::new());
            }
            (SeedKey::Copy(_), Known::Agreed(ours)) if ours.secret != there.secret => {
                return Heard::PutBack(*ours);
            }
            (SeedKey::Copy(_), Known::Agreed(_)) => {}
            (SeedKey::Copy(_), Known::Copied(ours, differing)) => {
                return match ours.secret == there.secret {
                    true => {
                        differing.remove(server);
                        Heard::Same
                    }
                    false => {
                        differing.insert(server.into());
                        Heard::Undecided
                    }
                };
            }
        }
        self.adopt(there.secret);
        Heard::Same
    }

    fn adopt(&self, secret: Secret) {
        for (known, word) in self.words.iter().zip(words(secret)) {
            known.store(word, Ordering::Relaxed);
        }
        // Release: whoever sees that there is one sees this one, or a later one.
        self.is_adopted.store(true, Ordering::Release);
        self.adopted.send_if_modified(|adopted| {
            let is_new = *adopted != Some(secret);
            *adopted = Some(secret);
            is_new
        });
    }

    /// Returns true if every server but one that could know a secret has been asked for it: all
    /// slots of all stores are served, and each of their servers has answered.
    pub(crate) fn were_all_asked(&self, but: &Arc<Shard>) -> bool {
        let was_asked = |it: &Arc<Shard>| {
            Arc::ptr_eq(it, but) || it.is_greeted() && it.status.lock().error.is_none()
        };
        self.stores.iter().all(|topology| {
            let map = topology.map();
            let is_known = !map.shards().is_empty() && map.unserved() == 0;
            is_known && map.shards().iter().all(was_asked)
        })
    }
}

/// Logs that two groups of nodes have counted apart, which neither may have noticed otherwise.
fn tell_conflict(server: &str, is_theirs: bool) {
    let what = match is_theirs {
        true => {
            "it is the older one: this node names its counters by it from now on, and what it counted until now is not found again"
        }
        false => {
            "that of this node is the older one, and was put back: who counted by the other begins anew"
        }
    };
    warn!(server, "a different hash key was found in Redis: {what}");
}

fn words(secret: Secret) -> [u64; 2] {
    let word = |bytes: &[u8]| {
        bytes
            .iter()
            .fold(0, |word, byte| word << 8 | u64::from(*byte))
    };
    let (high, low) = secret.split_at(8);
    [word(high), word(low)]
}

/// Returns 128 random bits.
fn random() -> Secret {
    let mut seed = [0; 16];
    if getrandom::fill(&mut seed).is_err() {
        // Without the system's generator a process still has the keys of its own hash tables.
        let word = || RandomState::new().build_hasher().finish().to_le_bytes();
        seed[..8].copy_from_slice(&word());
        seed[8..].copy_from_slice(&word());
    }
    seed
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::{Address, Node};
    use crate::topology::Range;

    fn first() -> SeedKey {
        SeedKey::First("rk:seed".to_owned())
    }

    fn copy() -> SeedKey {
        SeedKey::Copy("rk:seed:0".to_owned())
    }

    fn minted(at: u64, byte: u8) -> Minted {
        Minted {
            at: Timestamp::from_micros(at),
            secret: [byte; 16],
        }
    }

    #[test]
    fn a_copy_is_believed_until_the_first_is_heard() {
        let seed = Seed::new(None, Box::default());
        assert_eq!(seed.adopted(), None);
        assert_eq!(seed.hear(&copy(), "b", minted(1, 1)), Heard::Same);
        assert_eq!(seed.adopted(), Some([1; 16]));
        // Of two copies that differ, neither is known to be wrong.
        assert_eq!(seed.hear(&copy(), "b", minted(2, 2)), Heard::Undecided);
        assert_eq!(seed.adopted(), Some([1; 16]));
        assert_eq!(
            (seed.differing(), seed.is_agreed()),
            (vec!["b".into()], false)
        );
        // However young: another service may have made the copy.
        let first = minted(2, 2);
        assert_eq!(seed.hear(&self::first(), "a", first), Heard::Same);
        assert_eq!((seed.differing(), seed.is_agreed()), (vec![], true));
        assert_eq!(seed.adopted(), Some([2; 16]));
        assert_eq!(seed.hear(&copy(), "b", minted(1, 1)), Heard::PutBack(first));
        assert_eq!(seed.conflicts(), 0);
    }

    #[test]
    fn of_two_that_meet_the_older_one_counts_on_both_sides() {
        let (older, newer) = (minted(1, 1), minted(2, 2));
        let seed = Seed::new(None, Box::default());
        assert_eq!(seed.hear(&first(), "a", newer), Heard::Same);
        assert_eq!(seed.hear(&first(), "a", older), Heard::Same);
        assert_eq!((seed.adopted(), seed.conflicts()), (Some([1; 16]), 1));
        assert_eq!(seed.hear(&first(), "a", newer), Heard::PutBack(older));
        assert_eq!((seed.adopted(), seed.conflicts()), (Some([1; 16]), 2));
    }

    #[test]
    fn nothing_is_counted_by_another_key_than_the_one_that_is_known() {
        let seed = Seed::new(None, Box::default());
        let key = |byte| Some(HashKey::from_bytes([byte; 16]));
        assert!(!seed.admits(key(0)) && !seed.admits(key(1)));
        seed.hear(&first(), "a", minted(1, 1));
        assert!(seed.admits(key(1)) && !seed.admits(key(2)));
        let half = [[1; 8], [2; 8]]
            .concat()
            .try_into()
            .map(HashKey::from_bytes);
        assert!(!seed.admits(half.ok()));
        let setting = Seed::new(Some([3; 16]), Box::default());
        assert!(setting.admits(key(3)) && !setting.admits(key(1)));
    }

    #[test]
    fn a_proposal_goes_nowhere_but_to_the_first_key_when_it_may() {
        let seed = Seed::new(None, Box::default());
        let now = Timestamp::from_micros(5);
        assert_eq!(seed.offer(&copy(), true, now), None);
        assert_eq!(seed.offer(&first(), false, now), None);
        assert_eq!(seed.offer(&first(), true, now).map(|it| it.at), Some(now));
        let copied = minted(1, 1);
        seed.hear(&copy(), "b", copied);
        assert_eq!(seed.offer(&first(), false, now), Some(copied));
        assert_eq!(seed.offer(&copy(), false, now), Some(copied));
    }

    #[test]
    fn each_shard_has_a_key_that_lies_there() {
        let topology = Topology::cluster(vec![Node::default()]);
        let range = |first, last, port| Range {
            first,
            last,
            address: Address::tcp("h", port),
        };
        // The third has one slot.
        topology.adopt(&[
            range(0, 8_000, 1),
            range(8_001, 16_382, 2),
            range(16_383, 16_383, 3),
        ]);
        let map = topology.map();
        let keys_of = |is_first_store| -> Vec<_> {
            let shards = map.shards().iter();
            let keys = shards.map(|shard| SeedKey::of("rk:", shard, &map, is_first_store));
            keys.map(|key| key.expect("it serves slots")).collect()
        };
        let (keys, further) = (keys_of(true), keys_of(false));
        let firsts = keys.iter().filter(|key| matches!(key, SeedKey::First(_)));
        assert_eq!(firsts.count(), 1);
        // A further store has copies, under keys that are authoritative for no service.
        for key in &further {
            assert!(matches!(key, SeedKey::Copy(_)), "{key:?}");
            assert!(keys.iter().all(|it| it.name() != key.name()), "{key:?}");
        }
        for (key, shard) in keys.iter().chain(&further).zip(map.shards().iter().cycle()) {
            let owner = map.shard(slot_of_key(key.name())).expect("it is served");
            assert!(Arc::ptr_eq(owner, shard), "{key:?}");
        }
    }
}
