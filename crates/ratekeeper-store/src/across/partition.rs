//! The place of a counter.

use crate::StoreSlot;

/// A part of one of several stores: a request's steps there are decided together.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Partition {
    /// The store.
    pub store: StoreSlot,
    /// The part of it.
    pub slot: CounterSlot,
}

/// A part of a store.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum CounterSlot {
    /// A slot of its servers, by number; 0 for a store that is not divided.
    Server(u16),
    /// Counters of the store that this node decides in memory.
    Node,
}

impl CounterSlot {
    /// The only slot of a store that is not divided.
    pub const ONLY: Self = Self::Server(0);
}

impl From<StoreSlot> for Partition {
    /// All of a store that is not divided.
    fn from(store: StoreSlot) -> Self {
        Self {
            store,
            slot: CounterSlot::ONLY,
        }
    }
}
