//! Hits that a failure mode let pass, which the store is to count once it answers again.
//!
//! ```text
//!   store away:  a hit passes -> Owed (by counter and slice of time)
//!   store back:  Owed -> Post (an id of its own) -> charged, or repeated under the same id
//! ```
//!
//! A hit whose call was sent is not owed: the server may still carry the call out. It is counted as
//! unknown.
//!
//! Before the store has told the hash key, an entry has the unhashed name of its counter too, so that it can be posted
//! under the name that all nodes use.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::Mutex;
use ratekeeper_core::{Algorithm, MAX_COUNT, Micros, Timestamp};
use ratekeeper_store::{CounterKey, HashKey, Step, StoreError};

use crate::identity::{Namer, UnhashedName};

/// The most entries that are kept; hits beyond it are dropped, and counted.
const ENTRIES_MAX: usize = 1 << 16;

/// The most bytes that one unhashed name takes, and that all of them take.
const UNHASHED_MAX: usize = 16 << 10;
const UNHASHED_SUM_MAX: usize = 16 << 20;

/// Slices of the time for which hits count, to be posted together, for algorithms without windows that end.
const SLICES: u64 = 4;

/// Hits that this node let pass while the store did not answer, and those posted since.
#[derive(Debug, Default)]
pub(crate) struct Owed {
    ledger: Mutex<Ledger>,
    /// True while anything is owed: a check that the store answered looks at nothing else.
    owes: AtomicBool,
    counts: Counts,
}

#[derive(Debug, Default)]
struct Ledger {
    entries: HashMap<(CounterKey, u64), Debt>,
    /// Entries taken to be posted, and not settled yet.
    taken: usize,
    /// The bytes of all unhashed names.
    unhashed: usize,
    /// The time by the boot clock at which entries that no longer count were last dropped.
    swept: Micros,
}

/// Hits on one counter, of one slice of time.
#[derive(Clone, Debug)]
pub(crate) struct Debt {
    /// The counter, with the hits.
    pub(crate) step: Step,
    /// The time of the latest hit by the boot clock.
    pub(crate) latest: Micros,
    /// The secret that the counter was named by.
    pub(crate) named_by: HashKey,
    /// Set if the counter was named before the hash key was known.
    unhashed: Option<Box<UnhashedName>>,
}

#[derive(Debug, Default)]
struct Counts {
    owed: AtomicU64,
    posted: AtomicU64,
    dropped: AtomicU64,
    expired: AtomicU64,
    unknown: AtomicU64,
}

/// Counts of hits since the start.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct OwedCounts {
    /// Hits that a failure mode let pass and the store is to count.
    pub owed: u64,
    /// Hits of them that were posted.
    pub posted: u64,
    /// Hits of them that no longer counted when the store answered, for which there was no room, or whose counter has
    /// another name now.
    pub dropped: u64,
    /// Those of the dropped hits that no longer counted: nothing was lost with them.
    pub expired: u64,
    /// Hits whose call or post was sent, while it is unknown whether it was carried out.
    pub unknown: u64,
}

/// The outcome of trying to post.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Fate {
    Posted,
    Dropped,
    /// It no longer counts.
    Expired,
    Unknown,
}

/// The circumstances under which a hit passed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Passed {
    /// The time of the request by the limiter's clock.
    pub(crate) now: Timestamp,
    /// The same by the boot clock.
    pub(crate) boot: Micros,
    /// The secret that counters are named by.
    pub(crate) named_by: HashKey,
}

impl Owed {
    /// Returns true if anything is owed.
    #[inline]
    pub(crate) fn owes(&self) -> bool {
        // Relaxed: who sees it late posts late.
        self.owes.load(Ordering::Relaxed)
    }

    pub(crate) fn counts(&self) -> OwedCounts {
        let load = |count: &AtomicU64| count.load(Ordering::Relaxed);
        OwedCounts {
            owed: load(&self.counts.owed),
            posted: load(&self.counts.posted),
            dropped: load(&self.counts.dropped),
            expired: load(&self.counts.expired),
            unknown: load(&self.counts.unknown),
        }
    }

    /// Records that the hits of `step` passed although the store failed to decide by that `fault`. The counter has its
    /// `unhashed` name too while the hash key is not known.
    pub(crate) fn add(
        &self,
        step: &Step,
        unhashed: Option<&UnhashedName>,
        fault: StoreError,
        passed: &Passed,
    ) {
        let Ok(hits @ 1..) = u64::try_from(step.hits) else {
            return;
        };
        match fault {
            StoreError::Unavailable | StoreError::Overloaded => {}
            error if error.may_be_executed() => return add(&self.counts.unknown, hits),
            // The counter cannot be charged.
            _ => return,
        }
        let mut ledger = self.ledger.lock();
        let expired = ledger.sweep(passed.boot);
        add(&self.counts.dropped, expired);
        add(&self.counts.expired, expired);
        let key = (step.key, slice(step, passed.now));
        let Some(debt) = ledger.entry(key, step, unhashed, passed) else {
            drop(ledger);
            add(&self.counts.owed, hits);
            return add(&self.counts.dropped, hits);
        };
        // A post fills a counter to its limit at most, unless it is paid afterwards.
        let most = match step.limit.is_post_paid() {
            true => MAX_COUNT,
            false => step.limit.capacity(),
        };
        let most = most.cast_signed();
        let before = debt.step.hits;
        debt.step = Step {
            hits: before.saturating_add(step.hits).min(most).max(before),
            ..*step
        };
        debt.latest = debt.latest.max(passed.boot);
        debt.named_by = passed.named_by;
        let more = debt.step.hits - before;
        self.owes.store(true, Ordering::Relaxed);
        drop(ledger);
        add(&self.counts.owed, more.unsigned_abs());
    }

    /// Takes up to `most` entries to post them, each to be [settled](Self::settle). In one pass: a map that is emptied one by
    /// one is searched from its start each time.
    pub(crate) fn take(&self, most: usize) -> Vec<Debt> {
        let ledger = &mut *self.ledger.lock();
        let taken = ledger.entries.extract_if(|_, _| true).take(most);
        let taken: Vec<Debt> = taken.map(|(_, debt)| debt).collect();
        ledger.unhashed -= taken.iter().map(Debt::unhashed_size).sum::<usize>();
        ledger.taken += taken.len();
        taken
    }

    /// Counts an entry that was taken.
    pub(crate) fn settle(&self, debt: &Debt, settled: Fate) {
        let hits = debt.step.hits.unsigned_abs();
        let count = match settled {
            Fate::Posted => &self.counts.posted,
            Fate::Dropped | Fate::Expired => &self.counts.dropped,
            Fate::Unknown => &self.counts.unknown,
        };
        add(count, hits);
        if settled == Fate::Expired {
            add(&self.counts.expired, hits);
        }
        self.ledger.lock().taken -= 1;
    }

    /// Records that answers are awaited on which it depends if anything is owed.
    pub(crate) fn await_answers(&self) {
        self.owes.store(true, Ordering::Relaxed);
    }

    /// Owes nothing any more, if there is no entry. To be called if no answer is awaited.
    pub(crate) fn rest(&self) {
        let ledger = self.ledger.lock();
        if ledger.taken == 0 && ledger.entries.is_empty() {
            // Under the lock, so that no entry is added in between.
            self.owes.store(false, Ordering::Relaxed);
        }
    }
}

impl Debt {
    /// Returns true if none of its hits counts any more at `boot`.
    pub(crate) fn is_over(&self, boot: Micros) -> bool {
        let age = boot.get().saturating_sub(self.latest.get());
        match self.step.calendar {
            Some(bounds) => age >= bounds.end.since(bounds.start).get(),
            None => age >= self.step.limit.counts_for().get(),
        }
    }

    /// Names the counter by the hash key of `namer`. Returns false if it is named by another one, and its unhashed name is
    /// not known.
    pub(crate) fn rename(&mut self, namer: &Namer) -> bool {
        if self.named_by == namer.hash_key() {
            return true;
        }
        let Some(unhashed) = &self.unhashed else {
            return false;
        };
        self.step.key = namer.counter(unhashed);
        self.named_by = namer.hash_key();
        true
    }

    fn unhashed_size(&self) -> usize {
        self.unhashed.as_ref().map_or(0, |name| name.size())
    }
}

impl Ledger {
    /// The entry of `key`, which is made if there is room for it and the `unhashed` name; [`None`] if there is none.
    fn entry(
        &mut self,
        key: (CounterKey, u64),
        step: &Step,
        unhashed: Option<&UnhashedName>,
        passed: &Passed,
    ) -> Option<&mut Debt> {
        let size = unhashed.map_or(0, UnhashedName::size);
        let is_full = self.entries.len() + self.taken >= ENTRIES_MAX;
        let is_large = size > UNHASHED_MAX || self.unhashed + size > UNHASHED_SUM_MAX;
        match self.entries.entry(key) {
            Entry::Occupied(debt) => Some(debt.into_mut()),
            Entry::Vacant(_) if is_full || is_large => None,
            Entry::Vacant(place) => {
                self.unhashed += size;
                Some(place.insert(Debt {
                    step: Step { hits: 0, ..*step },
                    latest: passed.boot,
                    named_by: passed.named_by,
                    unhashed: unhashed.cloned().map(Box::new),
                }))
            }
        }
    }

    /// Drops entries that no longer count, once a second, and returns their hits.
    fn sweep(&mut self, boot: Micros) -> u64 {
        if boot.get().saturating_sub(self.swept.get()) < Micros::from_secs(1).get() {
            return 0;
        }
        self.swept = boot;
        let (mut dropped, mut freed) = (0, 0);
        self.entries.retain(|_, debt| {
            let is_over = debt.is_over(boot);
            if is_over {
                dropped += debt.step.hits.unsigned_abs();
                freed += debt.unhashed_size();
            }
            !is_over
        });
        self.unhashed -= freed;
        dropped
    }
}

/// The slice of time whose hits on a counter are posted together: a window or sub-window, by this
/// node's clock, so that the store counts them where they belong.
fn slice(step: &Step, now: Timestamp) -> u64 {
    if let Some(bounds) = step.calendar {
        let window = if now < bounds.end {
            bounds.start
        } else {
            bounds.end
        };
        return window.as_micros();
    }
    let limit = &step.limit;
    let parts = match limit.algorithm() {
        Algorithm::FixedWindow => 1,
        Algorithm::SlidingWindow
        | Algorithm::SlidingLog
        | Algorithm::TokenBucket
        | Algorithm::Gcra
        | Algorithm::LeakyBucket
        | Algorithm::Concurrency => u64::from(limit.sub_windows()).max(SLICES),
    };
    now.as_micros() / (limit.counts_for().get() / parts).max(1)
}

/// Relaxed: counts that nothing else goes by.
fn add(count: &AtomicU64, hits: u64) {
    count.fetch_add(hits, Ordering::Relaxed);
}

#[cfg(test)]
mod tests;
