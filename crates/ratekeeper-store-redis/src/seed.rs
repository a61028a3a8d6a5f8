//! The secret that counters are named by, and how all nodes come to have the same.
//!
//! It is made once and lies in Redis under one key, where each node puts it back and compares it
//! each second. In a cluster every shard but the one of that key has a copy, under a key that lies
//! there, and so has every further store of a service: a node that starts while the server of the
//! first is away, or has come back empty, finds the secret that the counters of all others are
//! named by. What lies under the first key of the first store is what counts, and copies are made
//! to agree with it. Those of further stores have keys that are nobody's first: another service may
//! have its own secret there, and is not to be given ours.

use std::collections::BTreeSet;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use tokio::sync::watch;

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
    /// Where `shard` keeps it, of the servers of `map`, which may be those of the first store;
    /// [`None`] if it serves nothing.
    pub(crate) fn of(
        prefix: &str,
        shard: &Arc<Shard>,
        map: &SlotMap,
        is_first_store: bool,
    ) -> Option<Self> {
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

/// What this node knows of the secret, for all of its stores.
pub(crate) struct Seed {
    known: Mutex<Known>,
    /// What is known, for who waits for it.
    adopted: watch::Sender<Option<Secret>>,
    /// Whether it is known, for who asks at each decision.
    is_adopted: AtomicBool,
    /// Whether it is a setting, so that it lies in no server.
    pub(crate) is_setting: bool,
    /// Where the stores lie whose counters are named by it.
    stores: Box<[Arc<Topology>]>,
}

/// The part that a store has in it.
#[derive(Clone, Debug)]
pub(crate) struct Share {
    pub(crate) seed: Arc<Seed>,
    /// Whether what the store says is what counts.
    pub(crate) is_first: bool,
}

enum Known {
    /// Nothing: this is what it proposes if there is none.
    Proposal(Secret),
    /// What a copy says, and which servers have other copies.
    Copied(Secret, BTreeSet<Box<str>>),
    /// What counts.
    Agreed(Secret),
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
        let known = setting.map_or_else(|| Known::Proposal(random()), Known::Agreed);
        Self {
            known: Mutex::new(known),
            adopted: watch::Sender::new(setting),
            is_adopted: AtomicBool::new(setting.is_some()),
            is_setting: setting.is_some(),
            stores,
        }
    }

    /// The secret; [`None`] before any server has told it.
    pub(crate) fn adopted(&self) -> Option<Secret> {
        *self.adopted.borrow()
    }

    /// The secret, once there is one other than `known`.
    pub(crate) async fn other_than(&self, known: Secret) -> Secret {
        let mut adopted = self.adopted.subscribe();
        let is_other = |secret: &Option<Secret>| secret.is_some_and(|it| it != known);
        let found = adopted.wait_for(is_other).await.ok();
        match found.and_then(|it| *it) {
            Some(secret) => secret,
            // The sender is this one's.
            None => std::future::pending().await,
        }
    }

    pub(crate) fn is_adopted(&self) -> bool {
        self.is_adopted.load(Ordering::Relaxed)
    }

    /// Whether what counts has been heard, and not a copy alone.
    pub(crate) fn is_agreed(&self) -> bool {
        matches!(*self.known.lock(), Known::Agreed(_))
    }

    /// Whether counters lie where the secret need not be known: in several places.
    pub(crate) fn is_shared(&self) -> bool {
        self.stores.len() > 1 || self.stores.iter().any(|it| it.is_cluster())
    }

    /// The servers whose copies differ from the one that was heard first, while what counts was
    /// not heard.
    pub(crate) fn differing(&self) -> Vec<Box<str>> {
        match &*self.known.lock() {
            Known::Copied(_, differing) => differing.iter().cloned().collect(),
            Known::Proposal(_) | Known::Agreed(_) => Vec::new(),
        }
    }

    /// What is to lie at `key` if nothing does. A node that knows of none proposes its own where
    /// it may.
    pub(crate) fn offer(&self, key: &SeedKey, may_propose: bool) -> Option<Secret> {
        match (&*self.known.lock(), key) {
            (Known::Proposal(secret), SeedKey::First(_)) if may_propose => Some(*secret),
            (Known::Proposal(_), _) => None,
            (Known::Copied(secret, _) | Known::Agreed(secret), _) => Some(*secret),
        }
    }

    /// Hears what lies at `key` of `server`; what has to lie there instead.
    pub(crate) fn hear(&self, key: &SeedKey, server: &str, there: Secret) -> Option<Secret> {
        let mut known = self.known.lock();
        match (key, &mut *known) {
            (SeedKey::First(_), known) => *known = Known::Agreed(there),
            (SeedKey::Copy(_), known @ Known::Proposal(_)) => {
                *known = Known::Copied(there, BTreeSet::new());
            }
            (SeedKey::Copy(_), Known::Agreed(secret)) if *secret != there => return Some(*secret),
            (SeedKey::Copy(_), Known::Agreed(_)) => {}
            (SeedKey::Copy(_), Known::Copied(secret, differing)) => {
                match *secret == there {
                    true => differing.remove(server),
                    false => differing.insert(server.into()),
                };
                return None;
            }
        }
        self.adopted.send_if_modified(|adopted| {
            let is_new = *adopted != Some(there);
            *adopted = Some(there);
            is_new
        });
        // Relaxed: what it is is read under a lock.
        self.is_adopted.store(true, Ordering::Relaxed);
        None
    }

    /// Whether every server but one that could know of a secret has been asked for it: all slots
    /// of all stores are served, and each of their servers has answered.
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
        let seed = Seed::new(None, Box::default());
        assert_eq!(seed.adopted(), None);
        assert_eq!(seed.hear(&copy(), "b", [1; 16]), None);
        assert_eq!(seed.adopted(), Some([1; 16]));
        // Of two copies that differ neither is known to be wrong.
        assert_eq!(seed.hear(&copy(), "b", [2; 16]), None);
        assert_eq!(seed.adopted(), Some([1; 16]));
        assert_eq!(
            (seed.differing(), seed.is_agreed()),
            (vec!["b".into()], false)
        );
        assert_eq!(seed.hear(&first(), "a", [2; 16]), None);
        assert_eq!((seed.differing(), seed.is_agreed()), (vec![], true));
        assert_eq!(seed.adopted(), Some([2; 16]));
        assert_eq!(seed.hear(&copy(), "b", [1; 16]), Some([2; 16]));
    }

    #[test]
    fn a_proposal_goes_nowhere_but_to_the_first_key_when_it_may() {
        let seed = Seed::new(None, Box::default());
        assert_eq!(seed.offer(&copy(), true), None);
        assert_eq!(seed.offer(&first(), false), None);
        assert!(seed.offer(&first(), true).is_some());
        seed.hear(&copy(), "b", [1; 16]);
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
        let keys_of = |is_first_store| -> Vec<_> {
            let shards = map.shards().iter();
            let keys = shards.map(|shard| SeedKey::of("rk:", shard, &map, is_first_store));
            keys.map(|key| key.expect("it serves slots")).collect()
        };
        let (keys, further) = (keys_of(true), keys_of(false));
        let firsts = keys.iter().filter(|key| matches!(key, SeedKey::First(_)));
        assert_eq!(firsts.count(), 1);
        // What lies in a further store is a copy, and where no service has what counts for it.
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
