//! The loans between regions, as a region's store keeps them.

use ratekeeper_core::region::counted::Counted;
use ratekeeper_core::{Limit, Micros, Timestamp, Whole};

use crate::{CounterKey, Step, StoreSlot};

/// A counter of which regions lend each other parts, or which they count together.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct LoanCounter {
    /// The name of the counter, the same in all regions.
    pub key: CounterKey,
    /// The part of the limit that this region owns; all of it where regions count it together.
    pub owns: Limit,
    /// The whole limit.
    pub whole: Whole,
    /// The way in which regions count it together; [`None`] if they lend each other parts.
    pub counted: Option<Counted>,
    /// The store that keeps it.
    pub store: StoreSlot,
}

impl LoanCounter {
    /// The counter of `step`, of which regions lend each other parts.
    #[must_use]
    pub const fn of(step: &Step) -> Self {
        Self {
            key: step.key,
            owns: step.limit,
            whole: step.whole,
            counted: step.counted,
            store: step.store,
        }
    }
}

/// A change of a counter's loans, made only if nothing that it was computed from is another now.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LoanChange {
    /// The window that it was computed in; 0 where loans last for a time.
    pub window: u64,
    /// The most hits that may be counted in that window, or missing in a bucket, by now.
    pub most: u64,
    /// The tokens that leave a bucket; below zero, those that come to it.
    pub tokens: i64,
    /// The loans that it was computed from; empty if there were none.
    pub before: Box<[u8]>,
    /// The loans to keep from now on.
    pub after: Box<[u8]>,
    /// The time for which to keep them.
    pub kept: Micros,
}

/// A counter and its loans, as the store has found them.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LoanState {
    /// The store's time.
    pub at: Timestamp,
    /// The window that is counted; 0 where loans last for a time.
    pub window: u64,
    /// The time until it ends; 0 where loans last for a time.
    pub left: Micros,
    /// The hits counted in it, or missing in a bucket, under the share that the region has now.
    pub count: u64,
    /// The generation of the region, in which what it holds for a time counts; 0 while that is not known.
    pub generation: u64,
    /// The loans, or the totals that regions have posted, before a change; empty if there are none.
    pub loans: Box<[u8]>,
    /// True if a change was made, and every replica has it; or if a total was kept.
    pub is_written: bool,
}

/// A counter that was asked for on this node, of which regions lend each other parts, or which they count together.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct LoanDemand {
    /// The counter.
    pub counter: LoanCounter,
    /// The [terms](crate::Step::terms) on which parts are lent, or it is counted.
    pub terms: u64,
    /// The hits asked for since the last look, denied ones too.
    pub hits: u64,
}
