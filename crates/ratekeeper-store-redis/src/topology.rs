//! The servers of a store, and the counters that each serves.
//!
//! A [`Topology`] has a [`SlotMap`] at any time, which is replaced whole. A single server serves
//! every slot of its map, which never changes. So does the primary that sentinels name, until they
//! name another one (`sentinel`). The map of a cluster comes from its nodes; any caller that finds
//! it wrong, or the cluster in trouble, wakes the task that asks them again (`survey`).

mod slot_map;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::{Mutex, RwLock};
use slot_map::UNSERVED;
pub(crate) use slot_map::{Range, SlotMap};
use tokio::sync::{Notify, watch};

use crate::discovery::DiscoveryError;
use crate::endpoint::{Deployment, SentinelSet};
use crate::metrics::{Fault, Metrics};
use crate::script::SLOTS;
use crate::server_address::{Address, ServerAddress};
use crate::shard::Shard;

/// The most shards that are accepted.
const SHARDS_MAX: usize = 1_000;

/// The number of servers remembered that no longer serve.
const FORMER_MAX: usize = 16;

/// The time for which a server is remembered that was named and serves nothing.
const GUEST: Duration = Duration::from_secs(60);

/// A server that was named, but serves nothing as far as is known.
#[derive(Debug)]
struct Guest {
    shard: Arc<Shard>,
    /// The last time it was named.
    named: Instant,
}

/// The reason that no map can be had.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Trouble {
    /// No node of the cluster returns it.
    #[error("no node of the Redis cluster returns the slot map: {0}")]
    Cluster(DiscoveryError),
    /// No sentinel names the primary.
    #[error("no sentinel names the primary: {0}")]
    Sentinels(DiscoveryError),
    /// Sentinels name a server, but it is no primary, or not there.
    #[error("the primary that the sentinels name cannot be used: {0}")]
    Primary(DiscoveryError),
}

/// The known places of counters.
#[derive(Debug)]
pub(crate) struct Topology {
    map: RwLock<Arc<SlotMap>>,
    /// The version of the map, for those checking for a change.
    version: AtomicU64,
    /// The same, for those waiting for a change.
    versions: watch::Sender<u64>,
    /// The nodes to ask about a cluster first; empty without a cluster.
    pub(crate) seeds: Vec<ServerAddress>,
    /// The sentinels to ask about a primary.
    pub(crate) sentinels: Option<SentinelSet>,
    /// Servers that were named, but serve nothing as far as is known, such as one that is getting its first slots.
    guests: Mutex<Vec<Guest>>,
    /// Servers that no longer serve, the latest last: their counts stay, so that a failure is still
    /// counted after another server has taken over.
    former: Mutex<Vec<Arc<Shard>>>,
    /// Counts of decisions for which no server is known.
    pub(crate) nowhere: Metrics,
    /// Wakes the task that surveys the cluster or asks the sentinels.
    pub(crate) doubted: Notify,
    /// The obstacle to the last look for servers, if any.
    pub(crate) trouble: Mutex<Option<Trouble>>,
    /// True once they have been asked, with any result.
    pub(crate) surveyed: watch::Sender<bool>,
}

impl Topology {
    /// Makes that of an endpoint.
    pub(crate) fn of(deployment: Deployment) -> Self {
        match deployment {
            Deployment::Cluster(nodes) => Self::cluster(nodes),
            Deployment::Sentinel(set) => Self::sentinel(set),
            Deployment::Single(server) => Self::single(server),
        }
    }

    /// Makes that of one server.
    pub(crate) fn single(server: ServerAddress) -> Self {
        let shard = Shard::new(server);
        // It may have replicas, but nothing says that one of them could take its place.
        shard.replicas.name(Some(0));
        let shards = [Arc::new(shard)].into();
        Self::new(shards, Box::default(), Vec::new())
    }

    /// Makes that of a cluster, of which these nodes are known.
    pub(crate) fn cluster(seeds: Vec<ServerAddress>) -> Self {
        let owners = vec![UNSERVED; usize::from(SLOTS)].into();
        Self::new(Box::default(), owners, seeds)
    }

    /// Makes that of the primary these sentinels name.
    pub(crate) fn sentinel(set: SentinelSet) -> Self {
        let mut topology = Self::new(Box::default(), Box::default(), Vec::new());
        topology.sentinels = Some(set);
        topology.surveyed.send_replace(false);
        topology
    }

    fn new(shards: Box<[Arc<Shard>]>, owners: Box<[u16]>, seeds: Vec<ServerAddress>) -> Self {
        let map = SlotMap {
            version: 0,
            shards,
            owners,
        };
        Self {
            map: RwLock::new(Arc::new(map)),
            version: AtomicU64::new(0),
            versions: watch::Sender::new(0),
            surveyed: watch::Sender::new(seeds.is_empty()),
            seeds,
            sentinels: None,
            guests: Mutex::default(),
            former: Mutex::default(),
            nowhere: Metrics::default(),
            doubted: Notify::new(),
            trouble: Mutex::default(),
        }
    }

    /// Returns true if counters lie in slots, so that one call must keep to one slot.
    pub(crate) fn is_cluster(&self) -> bool {
        !self.seeds.is_empty()
    }

    /// Returns true if servers are found by asking, so that another one may have taken over.
    pub(crate) fn is_found(&self) -> bool {
        self.is_cluster() || self.sentinels.is_some()
    }

    pub(crate) fn map(&self) -> Arc<SlotMap> {
        Arc::clone(&self.map.read())
    }

    pub(crate) fn version(&self) -> u64 {
        // Acquire: whoever sees the number finds the map.
        self.version.load(Ordering::Acquire)
    }

    /// Wakes the task that asks the cluster or the sentinels again.
    pub(crate) fn doubt(&self) {
        self.doubted.notify_one();
    }

    /// Returns the server at `address`, whatever it serves; [`None`] if there are too many.
    pub(crate) fn shard_at(&self, address: &Address) -> Option<Arc<Shard>> {
        if let Some(shard) = self.map.read().at(address) {
            return Some(Arc::clone(shard));
        }
        let mut guests = self.guests.lock();
        let named = Instant::now();
        let known = guests
            .iter_mut()
            .find(|it| it.shard.server.address == *address);
        if let Some(guest) = known {
            guest.named = named;
            return Some(Arc::clone(&guest.shard));
        }
        let seed = self.seeds.first()?;
        if guests.len() >= SHARDS_MAX {
            return None;
        }
        let shard = self.former_at(address).unwrap_or_else(|| {
            Arc::new(Shard::new(ServerAddress {
                address: address.clone(),
                ..seed.clone()
            }))
        });
        guests.push(Guest {
            shard: Arc::clone(&shard),
            named,
        });
        Some(shard)
    }

    /// The remembered servers that no longer serve.
    pub(crate) fn former(&self) -> Vec<Arc<Shard>> {
        let map = self.map();
        let serves = |it: &Arc<Shard>| map.shards.iter().any(|one| Arc::ptr_eq(one, it));
        let former = self.former.lock();
        former.iter().filter(|it| !serves(it)).cloned().collect()
    }

    /// Returns the server at `address`, if it has served before.
    fn former_at(&self, address: &Address) -> Option<Arc<Shard>> {
        let former = self.former.lock();
        let found = former.iter().find(|it| it.server.address == *address);
        found.cloned()
    }

    /// Counts a decision that no server could be asked for: that of its counters is not known, or
    /// the secret that names them.
    pub(crate) fn unplaced(&self) {
        let map = self.map();
        let metrics = match map.shards() {
            [one] => &one.metrics,
            _ => &self.nowhere,
        };
        metrics.fault(Fault::Unplaced, 1);
    }

    /// Returns true if `shard` serves anything, or was named lately.
    pub(crate) fn knows(&self, shard: &Arc<Shard>) -> bool {
        let serves = |it: &Arc<Shard>| Arc::ptr_eq(it, shard);
        self.map.read().shards.iter().any(serves)
            || self.guests.lock().iter().any(|it| serves(&it.shard))
    }

    /// Takes in that a server says `slot` is served at `address`. Returns true if that is news.
    pub(crate) fn moved(&self, slot: u16, address: &Address) -> bool {
        let Some(shard) = self.shard_at(address) else {
            return false;
        };
        let mut map = self.map.write();
        let is_known = map.shard(slot).is_some_and(|it| Arc::ptr_eq(it, &shard));
        if is_known || usize::from(slot) >= map.owners.len() || map.shards.len() >= SHARDS_MAX {
            return false;
        }
        let mut shards = map.shards.to_vec();
        let number = shards.iter().position(|it| Arc::ptr_eq(it, &shard));
        let number = number.unwrap_or_else(|| {
            shards.push(shard);
            shards.len() - 1
        });
        let mut owners = map.owners.clone();
        owners[usize::from(slot)] = u16::try_from(number).unwrap_or(UNSERVED);
        self.replace(&mut map, shards, owners);
        true
    }

    /// Takes in the number of replicas of each of a cluster's primaries; [`None`] where that is not known.
    pub(crate) fn name_replicas(&self, primaries: &[(Address, Option<usize>)]) {
        for (address, replicas) in primaries {
            if let Some(shard) = self.shard_at(address) {
                shard.replicas.name(*replicas);
            }
        }
    }

    /// Adopts the cluster's own view. Known servers are kept as they are.
    pub(crate) fn adopt(&self, ranges: &[Range]) {
        let before = self.map();
        let mut shards: Vec<Arc<Shard>> = Vec::new();
        let mut owners: Box<[u16]> = vec![UNSERVED; usize::from(SLOTS)].into();
        for range in ranges {
            let known = shards
                .iter()
                .position(|it| it.server.address == range.address);
            let number = match (known, self.shard_at(&range.address)) {
                (Some(number), _) => number,
                (None, Some(shard)) if shards.len() < SHARDS_MAX => {
                    shards.push(shard);
                    shards.len() - 1
                }
                (None, _) => continue,
            };
            let is_new = before.at(&range.address).is_none();
            if let Some(before) = before.shard(range.first).filter(|_| is_new) {
                shards[number].clock.succeed(&before.clock);
            }
            let number = u16::try_from(number).unwrap_or(UNSERVED);
            owners[usize::from(range.first)..=usize::from(range.last)].fill(number);
        }
        let mut map = self.map.write();
        let now = Instant::now();
        self.guests.lock().retain(|guest| {
            let serves = shards.iter().any(|it| Arc::ptr_eq(it, &guest.shard));
            !serves && now.saturating_duration_since(guest.named) < GUEST
        });
        let is_same = map.owners == owners
            && map.shards.len() == shards.len()
            && map
                .shards
                .iter()
                .zip(&shards)
                .all(|(one, other)| Arc::ptr_eq(one, other));
        if !is_same {
            self.replace(&mut map, shards, owners);
        }
    }

    /// Waits until there is another map than that of `version`.
    pub(crate) async fn changed(&self, version: u64) {
        let mut versions = self.versions.subscribe();
        // The sender lives as long as `self`.
        let _ = versions.wait_for(|it| *it != version).await;
    }

    /// Adopts `primary` with so many `replicas` as the only server; [`None`] if that is not known. Returns true if it
    /// is news.
    pub(crate) fn adopt_primary(&self, primary: ServerAddress, replicas: Option<usize>) -> bool {
        let mut map = self.map.write();
        if let Some(shard) = map.at(&primary.address) {
            shard.replicas.name(replicas);
            return false;
        }
        let known = self.former_at(&primary.address);
        let shard = known.unwrap_or_else(|| Arc::new(Shard::new(primary)));
        shard.replicas.name(replicas);
        if let Some(before) = map.shards.first() {
            shard.clock.succeed(&before.clock);
        }
        self.replace(&mut map, vec![shard], Box::default());
        true
    }

    fn replace(&self, map: &mut Arc<SlotMap>, shards: Vec<Arc<Shard>>, owners: Box<[u16]>) {
        self.remember(map.shards.iter().filter(|old| {
            let serves = |it: &Arc<Shard>| Arc::ptr_eq(it, old);
            !shards.iter().any(serves)
        }));
        let version = map.version + 1;
        *map = Arc::new(SlotMap {
            version,
            shards: shards.into(),
            owners,
        });
        self.version.store(version, Ordering::Release);
        self.versions.send_replace(version);
    }

    /// Remembers servers that no longer serve.
    fn remember<'a>(&self, gone: impl Iterator<Item = &'a Arc<Shard>>) {
        let mut former = self.former.lock();
        for shard in gone {
            former.retain(|it| !Arc::ptr_eq(it, shard));
            former.push(Arc::clone(shard));
        }
        let surplus = former.len().saturating_sub(FORMER_MAX);
        former.drain(..surplus);
    }
}

#[cfg(test)]
mod tests;
