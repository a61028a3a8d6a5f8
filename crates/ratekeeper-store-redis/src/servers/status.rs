//! The state of a store, as operators see it.

use ratekeeper_store::{HashKey, boot_time};

use super::RedisServers;
use crate::breaker::Circuit;
use crate::metrics::ShardCounts;
use crate::server_status::ServerStatus;

impl RedisServers {
    /// The status of the servers.
    #[must_use]
    pub fn server_status(&self) -> ServerStatus {
        self.monitor.server_status()
    }

    /// Waits until all known servers have been asked what they are, with any result.
    pub async fn greeted(&self) {
        self.monitor.greeted().await;
    }

    /// The hash key that all nodes name counters by; [`None`] before a server has returned it. Until
    /// then, and for counters [named by](ratekeeper_store::Request::named_by) another one, nothing is decided here:
    /// counts under a node's own hash key would be hidden from all other nodes.
    #[must_use]
    pub fn hash_key(&self) -> Option<HashKey> {
        self.monitor.hash_key().adopted().map(HashKey::from_bytes)
    }

    /// Waits until [`Self::hash_key`] is known and differs from `known`.
    pub async fn hash_key_other_than(&self, known: HashKey) -> HashKey {
        let other = self.monitor.hash_key().other_than(known.to_bytes()).await;
        HashKey::from_bytes(other)
    }

    /// Returns true if the authoritative hash key is known: not if only a copy was found.
    #[must_use]
    pub fn is_hash_key_agreed(&self) -> bool {
        self.monitor.hash_key().is_agreed()
    }

    /// The number of times another hash key than the one in use was found at the authoritative key:
    /// each time some nodes had counted apart from others.
    #[must_use]
    pub(crate) fn hash_key_conflicts(&self) -> u64 {
        self.monitor.hash_key().conflicts()
    }

    /// The counts of each shard; in a cluster, of those that serve slots now.
    #[must_use]
    pub fn shards(&self) -> Vec<ShardCounts> {
        let map = self.slots.topology().map();
        map.shards().iter().map(|shard| shard.counts()).collect()
    }

    /// As [`Self::shards`], for servers that no longer serve, and for decisions without a known
    /// server (their `shard` is empty): their failures stay counted. The circuit of such a shard
    /// means nothing.
    #[must_use]
    pub fn former_shards(&self) -> Vec<ShardCounts> {
        let topology = self.slots.topology();
        let former = topology.former();
        let nowhere = &topology.nowhere;
        let nowhere = nowhere
            .has_faults()
            .then(|| nowhere.counts("", Circuit::Closed));
        let former = former.iter().map(|shard| shard.counts());
        former.chain(nowhere).collect()
    }

    /// The number of requests denied from memory, without asking.
    #[must_use]
    pub fn denied_from_memory(&self) -> u64 {
        self.slots.denied_from_memory()
    }

    /// The faults that prevent decisions, or will.
    #[must_use]
    pub fn faults(&self) -> Vec<String> {
        let topology = self.slots.topology();
        let map = topology.map();
        let mut faults = Vec::new();
        if let Some(trouble) = &*topology.trouble.lock() {
            faults.push(trouble.to_string());
        } else if topology.is_cluster() && map.unserved() > 0 {
            let unserved = map.unserved();
            faults.push(format!(
                "{unserved} of 16384 slots of the Redis cluster are served by no node, and failure modes decide there"
            ));
        }
        for shard in map.shards() {
            faults.extend(shard.fault());
            faults.extend(shard.clock_fault());
            faults.extend(shard.distance.lock().as_deref().map(str::to_owned));
        }
        let follows = [
            (self.leases.get().is_some()).then_some("leased limits are counted exactly there"),
            (self.loans.get().is_some()).then_some("regions lend nothing of its counters"),
        ];
        let follows: Vec<&str> = follows.into_iter().flatten().collect();
        if !follows.is_empty() {
            let (follows, now) = (follows.join(", and "), boot_time());
            let shards = map.shards().iter();
            faults.extend(
                shards.filter_map(|shard| shard.replicas.fault(&shard.name, &follows, now)),
            );
        }
        faults.extend(self.monitor.hash_key_fault());
        faults.extend(self.monitor.server_status().warnings);
        faults
    }
}
