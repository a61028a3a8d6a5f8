//! The counters under one lock.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};

use ratekeeper_core::synced::SyncedCounter;
use ratekeeper_core::{Bounds, Limit, Micros, Moment, Timestamp};

use crate::{CounterKey, Step};

/// The least time between two searches for room.
const SEARCHED_EVERY: Micros = Micros::from_millis(100);

/// A counter's place in its round.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Phase {
    /// It has not been asked for in the last interval.
    Asleep,
    /// It waits for its turn.
    Waiting,
    /// The store has been asked.
    UnderWay,
}

#[derive(Debug)]
pub(super) struct Entry {
    pub(super) counter: SyncedCounter,
    /// The limit that it was made for: its window is that of all limits of this counter.
    pub(super) limit: Limit,
    pub(super) interval: Micros,
    pub(super) calendar: Option<Bounds>,
    /// The store's clock less the boot clock, as the last answer about this counter told it.
    pub(super) ahead: Option<i64>,
    pub(super) phase: Phase,
    /// True if it was asked for since the last sync.
    pub(super) is_asked: bool,
    pub(super) synced_at: Option<Micros>,
    pub(super) life: u64,
}

/// Counts since the start.
#[derive(Debug, Default)]
pub(super) struct Counts {
    pub(super) synced: u64,
    pub(super) failed: u64,
    pub(super) applied: u64,
    pub(super) dropped: u64,
    pub(super) refused: u64,
}

#[derive(Debug)]
pub(super) struct Shard {
    pub(super) entries: HashMap<CounterKey, Entry>,
    /// (Sub-)windows of all entries.
    windows: usize,
    windows_max: usize,
    searched_at: Option<Micros>,
    pub(super) counts: Counts,
}

impl Entry {
    fn new(step: &Step) -> Self {
        static LIVES: AtomicU64 = AtomicU64::new(1);
        Self {
            counter: SyncedCounter::new(),
            limit: step.limit,
            interval: step.sync,
            calendar: step.calendar,
            ahead: None,
            phase: Phase::Asleep,
            is_asked: false,
            synced_at: None,
            life: LIVES.fetch_add(1, Ordering::Relaxed),
        }
    }

    /// The store's time at `now` of the boot clock.
    pub(super) fn moment(&self, ahead: i64, now: Micros) -> Moment {
        Moment {
            now: Timestamp::from_micros(now.get().saturating_add_signed(ahead)),
            calendar: self.calendar,
        }
    }

    /// Returns true if nothing is lost with it.
    fn is_over(&self, ahead: i64, now: Micros) -> bool {
        let at = self.moment(self.ahead.unwrap_or(ahead), now);
        self.phase == Phase::Asleep
            && self.counter.pending() == 0
            && self.counter.expires_at(&self.limit, &at) <= at.now
    }
}

impl Shard {
    pub(super) fn new(windows_max: usize) -> Self {
        Self {
            entries: HashMap::new(),
            windows: 0,
            windows_max,
            searched_at: None,
            counts: Counts::default(),
        }
    }

    /// The counter of `step`, made if it is not there; [`None`] if there is no room.
    pub(super) fn entry(&mut self, step: &Step, ahead: i64, now: Micros) -> Option<&mut Entry> {
        if !self.entries.contains_key(&step.key) {
            let windows = SyncedCounter::parts_of(&step.limit);
            if self.windows + windows > self.windows_max {
                self.make_room(ahead, now);
            }
            if self.windows + windows > self.windows_max {
                self.counts.refused += 1;
                return None;
            }
            self.windows += windows;
            self.entries.insert(step.key, Entry::new(step));
        }
        self.entries.get_mut(&step.key)
    }

    /// Forgets what is over.
    pub(super) fn sweep(&mut self, ahead: i64, now: Micros) {
        self.keep(|entry| !entry.is_over(ahead, now));
    }

    /// Forgets what is over, or else what was not asked for lately: the store has its hits, and tells them if it comes back.
    fn make_room(&mut self, ahead: i64, now: Micros) {
        let since = |at: Micros| now.get().saturating_sub(at.get());
        if self
            .searched_at
            .is_some_and(|at| since(at) < SEARCHED_EVERY.get())
        {
            return;
        }
        self.searched_at = Some(now);
        let before = self.entries.len();
        self.sweep(ahead, now);
        if self.entries.len() == before {
            self.keep(|entry| entry.phase != Phase::Asleep || entry.counter.pending() > 0);
        }
    }

    fn keep(&mut self, is_kept: impl Fn(&Entry) -> bool) {
        let windows = &mut self.windows;
        self.entries.retain(|_, entry| {
            let is_kept = is_kept(entry);
            if !is_kept {
                *windows -= SyncedCounter::parts_of(&entry.limit);
            }
            is_kept
        });
    }
}
