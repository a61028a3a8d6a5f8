//! The servers of slots.

use std::sync::Arc;

use crate::server_address::Address;
use crate::shard::Shard;

/// The known shard of each slot.
#[derive(Debug)]
pub(crate) struct SlotMap {
    pub(crate) version: u64,
    /// The shards that serve slots, each once.
    pub(super) shards: Box<[Arc<Shard>]>,
    /// The number of each slot's shard; empty if one shard serves all.
    pub(super) owners: Box<[u16]>,
}

impl SlotMap {
    /// The number of the shard that serves `slot`.
    pub(crate) fn owner(&self, slot: u16) -> Option<usize> {
        let Some(owner) = self.owners.get(usize::from(slot)) else {
            return (!self.shards.is_empty()).then_some(0);
        };
        (*owner != UNSERVED).then(|| usize::from(*owner))
    }

    /// The shard that serves `slot`.
    pub(crate) fn shard(&self, slot: u16) -> Option<&Arc<Shard>> {
        self.shards.get(self.owner(slot)?)
    }

    pub(crate) fn shards(&self) -> &[Arc<Shard>] {
        &self.shards
    }

    /// Returns true if `shard` serves any slot.
    pub(crate) fn serves(&self, shard: &Arc<Shard>) -> bool {
        let number = self.shards.iter().position(|it| Arc::ptr_eq(it, shard));
        let Some(number) = number.and_then(|it| u16::try_from(it).ok()) else {
            return false;
        };
        self.owners.is_empty() || self.owners.contains(&number)
    }

    /// The number of slots that no server serves.
    pub(crate) fn unserved(&self) -> usize {
        self.owners
            .iter()
            .filter(|owner| **owner == UNSERVED)
            .count()
    }

    pub(super) fn at(&self, address: &Address) -> Option<&Arc<Shard>> {
        self.shards.iter().find(|it| it.server.address == *address)
    }
}

/// A range of slots that a cluster assigns to one of its nodes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Range {
    pub(crate) first: u16,
    pub(crate) last: u16,
    pub(crate) address: Address,
}

/// The number of no shard.
pub(super) const UNSERVED: u16 = u16::MAX;
