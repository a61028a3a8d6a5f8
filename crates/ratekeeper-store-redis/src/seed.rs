//! The secret that counters are named by, and how all nodes come to have the same.
//!
//! It is made once and lies in Redis under one key, where each node puts it back and compares it
//! each second. In a cluster every shard but the one of that key has a copy, under a key that lies
//! there: a node that starts while the shard of the first is away, or has come back empty, finds
//! the secret that the counters of all others are named by. What lies under the first key is what
//! counts, and copies are made to agree with it.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;

use crate::script::slot_of_key;
use crate::shard::Shard;
use crate::topology::{SlotMap, Topology};

/// How many names are tried for the key of a copy: enough for a shard that has a single slot.
const NAMES_MAX: u32 = 1 << 18;

/// 128 bits.
pub(crate) type Secret = [u8; 16];

/// Where a server keeps the secret.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum SeedKey {
    /// What lies there is what counts.
    First(String),
    /// For when that cannot be asked.
    Copy(String),
}

impl SeedKey {
    /// Where `shard` keeps it, of the servers of `map`; [`None`] if it serves nothing.
    pub(crate) fn of(prefix: &str, shard: &Arc<Shard>, map: &SlotMap) -> Option<Self> {
        let lies_there = |key: &str| {
            let owner = map.shard(slot_of_key(key));
            owner.is_some_and(|it| Arc::ptr_eq(it, shard))
        };
        let first = format!("{prefix}seed");
        if lies_there(&first) {
            return Some(Self::First(first));
        }
        let mut copies = (0..NAMES_MAX).map(|number| format!("{first}:{number}"));
        copies.find(|key| lies_there(key)).map(Self::Copy)
    }

    pub(crate) fn name(&self) -> &str {
        match self {
            Self::First(key) | Self::Copy(key) => key,
        }
    }
}

/// What this node knows of the secret.
#[derive(Debug)]
pub(crate) struct Seed {
    known: Mutex<Known>,
    /// Whether it is known, for who asks at each decision.
    is_adopted: AtomicBool,
    /// Whether it is a setting, so that it lies in no server.
    pub(crate) is_setting: bool,
}

#[derive(Clone, Copy)]
enum Known {
    /// Nothing: this is what it proposes if there is none.
    Proposal(Secret),
    /// What a copy says.
    Copied(Secret),
    /// What counts.
    Agreed(Secret),
}

/// Without the secret.
impl std::fmt::Debug for Known {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Proposal(_) => "Proposal",
            Self::Copied(_) => "Copied",
            Self::Agreed(_) => "Agreed",
        })
    }
}

impl Seed {
    pub(crate) fn new(setting: Option<Secret>) -> Self {
        let known = setting.map_or_else(|| Known::Proposal(random()), Known::Agreed);
        Self {
            known: Mutex::new(known),
            is_adopted: AtomicBool::new(setting.is_some()),
            is_setting: setting.is_some(),
        }
    }

    /// The secret; [`None`] before any server has told it.
    pub(crate) fn adopted(&self) -> Option<Secret> {
        match *self.known.lock() {
            Known::Proposal(_) => None,
            Known::Copied(secret) | Known::Agreed(secret) => Some(secret),
        }
    }

    pub(crate) fn is_adopted(&self) -> bool {
        self.is_adopted.load(Ordering::Relaxed)
    }

    /// What is to lie at `key` if nothing does. A node that knows of none proposes its own where
    /// it may.
    pub(crate) fn offer(&self, key: &SeedKey, may_propose: bool) -> Option<Secret> {
        match (*self.known.lock(), key) {
            (Known::Proposal(secret), SeedKey::First(_)) if may_propose => Some(secret),
            (Known::Proposal(_), _) => None,
            (Known::Copied(secret) | Known::Agreed(secret), _) => Some(secret),
        }
    }

    /// Hears what lies at `key`; what has to lie there instead.
    pub(crate) fn hear(&self, key: &SeedKey, there: Secret) -> Option<Secret> {
        let mut known = self.known.lock();
        match (key, *known) {
            (SeedKey::First(_), _) => *known = Known::Agreed(there),
            (SeedKey::Copy(_), Known::Proposal(_)) => *known = Known::Copied(there),
            (SeedKey::Copy(_), Known::Agreed(secret)) if secret != there => return Some(secret),
            (SeedKey::Copy(_), Known::Copied(_) | Known::Agreed(_)) => {}
        }
        // Relaxed: what it is is read under the lock.
        self.is_adopted.store(true, Ordering::Relaxed);
        None
    }
}

/// Whether every server that could know of a secret has been asked for it: all slots are served,
/// and each of their servers has answered.
pub(crate) fn were_all_asked(topology: &Topology, but: &Arc<Shard>) -> bool {
    let map = topology.map();
    let mut others = map.shards().iter().filter(|it| !Arc::ptr_eq(it, but));
    let was_asked = |it: &Arc<Shard>| it.is_greeted() && it.status.lock().error.is_none();
    map.unserved() == 0 && others.all(was_asked)
}

/// 128 bits that nobody knows.
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

    #[test]
    fn a_copy_is_believed_until_the_first_is_heard() {
        let seed = Seed::new(None);
        assert_eq!(seed.adopted(), None);
        assert_eq!(seed.hear(&copy(), [1; 16]), None);
        assert_eq!(seed.adopted(), Some([1; 16]));
        // Of two copies that differ neither is known to be wrong.
        assert_eq!(seed.hear(&copy(), [2; 16]), None);
        assert_eq!(seed.adopted(), Some([1; 16]));
        assert_eq!(seed.hear(&first(), [2; 16]), None);
        assert_eq!(seed.adopted(), Some([2; 16]));
        assert_eq!(seed.hear(&copy(), [1; 16]), Some([2; 16]));
    }

    #[test]
    fn a_proposal_goes_nowhere_but_to_the_first_key_when_it_may() {
        let seed = Seed::new(None);
        assert_eq!(seed.offer(&copy(), true), None);
        assert_eq!(seed.offer(&first(), false), None);
        assert!(seed.offer(&first(), true).is_some());
        seed.hear(&copy(), [1; 16]);
        assert_eq!(seed.offer(&first(), false), Some([1; 16]));
        assert_eq!(seed.offer(&copy(), false), Some([1; 16]));
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
        let keys: Vec<_> = map
            .shards()
            .iter()
            .map(|shard| SeedKey::of("rk:", shard, &map).expect("it serves slots"))
            .collect();
        let firsts = keys.iter().filter(|key| matches!(key, SeedKey::First(_)));
        assert_eq!(firsts.count(), 1);
        for (key, shard) in keys.iter().zip(map.shards()) {
            let owner = map.shard(slot_of_key(key.name())).expect("it is served");
            assert!(Arc::ptr_eq(owner, shard), "{key:?}");
        }
    }
}
