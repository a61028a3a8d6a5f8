//! The hash key that counters are named by, and the protocol by which all nodes come to share it.
//!
//! It is made once and lies in Redis under one key, where each node puts it back and compares it
//! each second. A node counts nothing before it knows the hash key, and makes one only if no other
//! node can be about to put one back. If two meet all the same, the older one wins, for all nodes
//! ([`Minted`]). In a cluster every shard but the one of that key has a copy, under a key that lies
//! there, and so has every further store of a service: a node that starts while the first store's
//! server is away, or has come back empty, finds the hash key that all others name counters by. The
//! first key of the first store is authoritative, and copies are made to agree with it. Copies in
//! further stores have keys of which none comes first: another service may have its own hash key there,
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
pub(crate) type KeyBytes = [u8; 16];

/// The key under which a server keeps the hash key.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum HashKeyName {
    /// The authoritative key.
    First(String),
    /// A copy, for when the authoritative key cannot be read.
    Copy(String),
}

impl HashKeyName {
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
        let first = format!("{prefix}hash-key");
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

/// This node's knowledge of the hash key, for all of its stores.
pub(crate) struct SharedHashKey {
    known: Mutex<KnownKey>,
    /// The hash key, once it is known, for those waiting for it.
    adopted: watch::Sender<Option<KeyBytes>>,
    /// The same in two words, for the comparison in each decision: a half-written change equals neither hash key.
    words: [AtomicU64; 2],
    /// True once it is known, for the check in each decision.
    is_adopted: AtomicBool,
    /// The number of times another hash key than the one in use was found at the authoritative key.
    conflicts: AtomicU64,
    /// True if the hash key is a setting, so that it lies in no server.
    pub(crate) is_setting: bool,
    /// The topologies of the stores whose counters are named by it.
    stores: Box<[Arc<Topology>]>,
}

/// A store's part in sharing the hash key.
#[derive(Clone, Debug)]
pub(crate) struct HashKeyRole {
    pub(crate) hash_key: Arc<SharedHashKey>,
    /// True if the store's hash key is authoritative.
    pub(crate) is_first: bool,
}

enum KnownKey {
    /// Nothing: this hash key is proposed if there is none.
    Proposal(KeyBytes),
    /// A copy's hash key, and the servers with differing copies.
    Copied(Minted, BTreeSet<Box<str>>),
    /// The authoritative hash key.
    Agreed(Minted),
}

/// The result of reading the hash key in one place.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum KeyComparison {
    /// It is the one that this node uses, perhaps from now on.
    Same,
    /// It is a copy that differs, while the authoritative hash key is not known.
    Undecided,
    /// It is a different one: this one has to replace it.
    PutBack(Minted),
}

/// Without the hash key.
impl std::fmt::Debug for SharedHashKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SharedHashKey")
            .field("known", &*self.known.lock())
            .field("is_setting", &self.is_setting)
            .finish_non_exhaustive()
    }
}

/// As above.
impl std::fmt::Debug for KnownKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Proposal(_) => "Proposal",
            Self::Copied(..) => "Copied",
            Self::Agreed(_) => "Agreed",
        })
    }
}

impl SharedHashKey {
    pub(crate) fn new(setting: Option<HashKey>, stores: Box<[Arc<Topology>]>) -> Self {
        let setting = setting.map(HashKey::to_bytes);
        let known = match setting {
            Some(secret) => KnownKey::Agreed(Minted::undated(secret)),
            None => KnownKey::Proposal(random()),
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

    /// The hash key; [`None`] before any server has told it.
    pub(crate) fn adopted(&self) -> Option<KeyBytes> {
        *self.adopted.borrow()
    }

    /// Waits for a hash key other than `known`, and returns it.
    pub(crate) async fn other_than(&self, known: KeyBytes) -> KeyBytes {
        let mut adopted = self.adopted.subscribe();
        let is_other = |secret: &Option<KeyBytes>| secret.is_some_and(|it| it != known);
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

    /// Returns true if counters named by `key` may be counted: it is the hash key that all nodes
    /// have, as far as is known. Without `key`, the hash key has to be known only if counters lie in
    /// several places.
    pub(crate) fn admits(&self, key: Option<HashKey>) -> bool {
        // Relaxed: a decision that sees the previous hash key is as good as one made a moment earlier.
        let is = |(known, word): (&AtomicU64, u64)| known.load(Ordering::Relaxed) == word;
        match key {
            Some(key) => self.is_adopted() && self.words.iter().zip(words(key.to_bytes())).all(is),
            None => self.is_adopted() || !self.is_shared(),
        }
    }

    /// Returns true if the authoritative hash key is known, and not just a copy.
    pub(crate) fn is_agreed(&self) -> bool {
        matches!(*self.known.lock(), KnownKey::Agreed(_))
    }

    /// The number of times another hash key than the one in use was found at the authoritative key.
    pub(crate) fn conflicts(&self) -> u64 {
        self.conflicts.load(Ordering::Relaxed)
    }

    /// Returns true if counters lie in several places.
    fn is_shared(&self) -> bool {
        self.stores.len() > 1 || self.stores.iter().any(|it| it.is_cluster())
    }

    /// The servers whose copies differ from the first one seen, while the authoritative hash key is not known.
    pub(crate) fn differing(&self) -> Vec<Box<str>> {
        match &*self.known.lock() {
            KnownKey::Copied(_, differing) => differing.iter().cloned().collect(),
            KnownKey::Proposal(_) | KnownKey::Agreed(_) => Vec::new(),
        }
    }

    /// Returns the hash key to store at `key` if it is empty, `now` by the clock of its server. A
    /// node that knows none proposes its own where it may.
    pub(crate) fn offer(
        &self,
        key: &HashKeyName,
        may_propose: bool,
        now: Timestamp,
    ) -> Option<Minted> {
        match (&*self.known.lock(), key) {
            (KnownKey::Proposal(secret), HashKeyName::First(_)) if may_propose => Some(Minted {
                at: now,
                secret: *secret,
            }),
            (KnownKey::Proposal(_), _) => None,
            (KnownKey::Copied(minted, _) | KnownKey::Agreed(minted), _) => Some(*minted),
        }
    }

    /// Takes in the hash key found at `key` of `server`, and returns what has to be done about it.
    pub(crate) fn compare(&self, key: &HashKeyName, server: &str, there: Minted) -> KeyComparison {
        let mut known = self.known.lock();
        match (key, &mut *known) {
            (HashKeyName::First(_), KnownKey::Agreed(ours)) if ours.secret != there.secret => {
                let ours = *ours;
                self.conflicts.fetch_add(1, Ordering::Relaxed);
                let is_theirs = there.prevails_over(&ours);
                tell_conflict(server, is_theirs);
                if !is_theirs {
                    return KeyComparison::PutBack(ours);
                }
                *known = KnownKey::Agreed(there);
            }
            (HashKeyName::First(_), known) => *known = KnownKey::Agreed(there),
            (HashKeyName::Copy(_), known @ KnownKey::Proposal(_)) => {
                *known = KnownKey::Copied(there, BTreeSet::new());
            }
            (HashKeyName::Copy(_), KnownKey::Agreed(ours)) if ours.secret != there.secret => {
                return KeyComparison::PutBack(*ours);
            }
            (HashKeyName::Copy(_), KnownKey::Agreed(_)) => {}
            (HashKeyName::Copy(_), KnownKey::Copied(ours, differing)) => {
                return match ours.secret == there.secret {
                    true => {
                        differing.remove(server);
                        KeyComparison::Same
                    }
                    false => {
                        differing.insert(server.into());
                        KeyComparison::Undecided
                    }
                };
            }
        }
        self.adopt(there.secret);
        KeyComparison::Same
    }

    fn adopt(&self, secret: KeyBytes) {
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

    /// Returns true if every server but one that could know a hash key has been asked for it: all
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
            "that of this node is the older one, and was put back: who counted by the other starts over"
        }
    };
    warn!(server, "a different hash key was found in Redis: {what}");
}

fn words(secret: KeyBytes) -> [u64; 2] {
    let word = |bytes: &[u8]| {
        bytes
            .iter()
            .fold(0, |word, byte| word << 8 | u64::from(*byte))
    };
    let (high, low) = secret.split_at(8);
    [word(high), word(low)]
}

/// Returns 128 random bits.
fn random() -> KeyBytes {
    let mut hash_key = [0; 16];
    if getrandom::fill(&mut hash_key).is_err() {
        // Without the system's generator a process still has the keys of its own hash tables.
        let word = || RandomState::new().build_hasher().finish().to_le_bytes();
        hash_key[..8].copy_from_slice(&word());
        hash_key[8..].copy_from_slice(&word());
    }
    hash_key
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server_address::{Address, ServerAddress};
    use crate::topology::Range;

    fn first() -> HashKeyName {
        HashKeyName::First("rk:hash-key".to_owned())
    }

    fn copy() -> HashKeyName {
        HashKeyName::Copy("rk:hash-key:0".to_owned())
    }

    fn minted(at: u64, byte: u8) -> Minted {
        Minted {
            at: Timestamp::from_micros(at),
            secret: [byte; 16],
        }
    }

    #[test]
    fn a_copy_is_believed_until_the_first_is_heard() {
        let hash_key = SharedHashKey::new(None, Box::default());
        assert_eq!(hash_key.adopted(), None);
        assert_eq!(
            hash_key.compare(&copy(), "b", minted(1, 1)),
            KeyComparison::Same
        );
        assert_eq!(hash_key.adopted(), Some([1; 16]));
        // Of two copies that differ, neither is known to be wrong.
        assert_eq!(
            hash_key.compare(&copy(), "b", minted(2, 2)),
            KeyComparison::Undecided
        );
        assert_eq!(hash_key.adopted(), Some([1; 16]));
        assert_eq!(
            (hash_key.differing(), hash_key.is_agreed()),
            (vec!["b".into()], false)
        );
        // However young: another service may have made the copy.
        let first = minted(2, 2);
        assert_eq!(
            hash_key.compare(&self::first(), "a", first),
            KeyComparison::Same
        );
        assert_eq!((hash_key.differing(), hash_key.is_agreed()), (vec![], true));
        assert_eq!(hash_key.adopted(), Some([2; 16]));
        assert_eq!(
            hash_key.compare(&copy(), "b", minted(1, 1)),
            KeyComparison::PutBack(first)
        );
        assert_eq!(hash_key.conflicts(), 0);
    }

    #[test]
    fn of_two_that_meet_the_older_one_counts_on_both_sides() {
        let (older, newer) = (minted(1, 1), minted(2, 2));
        let hash_key = SharedHashKey::new(None, Box::default());
        assert_eq!(hash_key.compare(&first(), "a", newer), KeyComparison::Same);
        assert_eq!(hash_key.compare(&first(), "a", older), KeyComparison::Same);
        assert_eq!(
            (hash_key.adopted(), hash_key.conflicts()),
            (Some([1; 16]), 1)
        );
        assert_eq!(
            hash_key.compare(&first(), "a", newer),
            KeyComparison::PutBack(older)
        );
        assert_eq!(
            (hash_key.adopted(), hash_key.conflicts()),
            (Some([1; 16]), 2)
        );
    }

    #[test]
    fn nothing_is_counted_by_another_key_than_the_one_that_is_known() {
        let hash_key = SharedHashKey::new(None, Box::default());
        let key = |byte| Some(HashKey::from_bytes([byte; 16]));
        assert!(!hash_key.admits(key(0)) && !hash_key.admits(key(1)));
        hash_key.compare(&first(), "a", minted(1, 1));
        assert!(hash_key.admits(key(1)) && !hash_key.admits(key(2)));
        let half = [[1; 8], [2; 8]]
            .concat()
            .try_into()
            .map(HashKey::from_bytes);
        assert!(!hash_key.admits(half.ok()));
        let setting = SharedHashKey::new(Some(HashKey::from_bytes([3; 16])), Box::default());
        assert!(setting.admits(key(3)) && !setting.admits(key(1)));
    }

    #[test]
    fn a_proposal_goes_nowhere_but_to_the_first_key_when_it_may() {
        let hash_key = SharedHashKey::new(None, Box::default());
        let now = Timestamp::from_micros(5);
        assert_eq!(hash_key.offer(&copy(), true, now), None);
        assert_eq!(hash_key.offer(&first(), false, now), None);
        assert_eq!(
            hash_key.offer(&first(), true, now).map(|it| it.at),
            Some(now)
        );
        let copied = minted(1, 1);
        hash_key.compare(&copy(), "b", copied);
        assert_eq!(hash_key.offer(&first(), false, now), Some(copied));
        assert_eq!(hash_key.offer(&copy(), false, now), Some(copied));
    }

    #[test]
    fn each_shard_has_a_key_that_lies_there() {
        let topology = Topology::cluster(vec![ServerAddress::default()]);
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
            let keys = shards.map(|shard| HashKeyName::of("rk:", shard, &map, is_first_store));
            keys.map(|key| key.expect("it serves slots")).collect()
        };
        let (keys, further) = (keys_of(true), keys_of(false));
        let firsts = keys
            .iter()
            .filter(|key| matches!(key, HashKeyName::First(_)));
        assert_eq!(firsts.count(), 1);
        // A further store has copies, under keys that are authoritative for no service.
        for key in &further {
            assert!(matches!(key, HashKeyName::Copy(_)), "{key:?}");
            assert!(keys.iter().all(|it| it.name() != key.name()), "{key:?}");
        }
        for (key, shard) in keys.iter().chain(&further).zip(map.shards().iter().cycle()) {
            let owner = map.shard(slot_of_key(key.name())).expect("it is served");
            assert!(Arc::ptr_eq(owner, shard), "{key:?}");
        }
    }
}
