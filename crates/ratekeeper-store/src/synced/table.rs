//! The counters under one lock.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
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

/// Joins the two words of a key, which are keyed hashes already. The part of a counter is told by their low bits, so these go
/// elsewhere.
#[derive(Debug, Default)]
pub(super) struct ByKey(u64);

impl Hasher for ByKey {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64(u64::from(*byte));
        }
    }

    fn write_u64(&mut self, word: u64) {
        self.0 = self.0.rotate_left(26) ^ word;
    }
}

#[derive(Debug)]
pub(super) struct Shard {
    pub(super) entries: HashMap<CounterKey, Entry, BuildHasherDefault<ByKey>>,
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

    /// Returns true if it was not asked for lately, and the store has its hits.
    fn is_idle(&self) -> bool {
        self.phase == Phase::Asleep && self.counter.pending() == 0
    }

    /// Returns true if it has hits that count, of this node or others.
    fn has_hits(&self, ahead: i64, now: Micros) -> bool {
        let at = self.moment(self.ahead.unwrap_or(ahead), now);
        let known = self.counter.known(&self.limit, &at);
        known.own > 0 || known.others > 0
    }

    /// Returns true if nothing is lost with it.
    fn is_over(&self, ahead: i64, now: Micros) -> bool {
        let at = self.moment(self.ahead.unwrap_or(ahead), now);
        self.is_idle() && self.counter.expires_at(&self.limit, &at) <= at.now
    }
}

impl Shard {
    pub(super) fn new(windows_max: usize) -> Self {
        Self {
            entries: HashMap::default(),
            windows: 0,
            windows_max,
            searched_at: None,
            counts: Counts::default(),
        }
    }

    /// Makes the counter of `step`, which is not there; returns false if there is no room.
    pub(super) fn make(&mut self, step: &Step, ahead: i64, now: Micros) -> bool {
        let has_room = self.has_room(step, 0, ahead, now);
        if has_room {
            self.windows += SyncedCounter::parts_of(&step.limit);
            self.entries.insert(step.key, Entry::new(step));
        }
        has_room
    }

    /// Returns true if there is room for the counter of `step`, or is now, beside so many windows that were `promised`.
    pub(super) fn has_room(
        &mut self,
        step: &Step,
        promised: usize,
        ahead: i64,
        now: Micros,
    ) -> bool {
        let windows = promised + SyncedCounter::parts_of(&step.limit);
        if self.windows + windows > self.windows_max {
            self.make_room(ahead, now);
        }
        let has_room = self.windows + windows <= self.windows_max;
        self.counts.refused += u64::from(!has_room);
        has_room
    }

    /// Forgets what is over.
    pub(super) fn sweep(&mut self, ahead: i64, now: Micros) {
        self.keep(|entry| !entry.is_over(ahead, now));
    }

    /// Forgets what is over, or else what has no hits, or else half of what was not asked for lately, the longest unsynced
    /// first: the store has its hits, and tells them if it comes back.
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
            self.keep(|entry| !entry.is_idle() || entry.has_hits(ahead, now));
        }
        if self.entries.len() == before {
            self.forget_half();
        }
    }

    /// Forgets half of the counters that were not asked for lately, the longest unsynced first.
    fn forget_half(&mut self) {
        let idle = self.entries.values().filter(|entry| entry.is_idle());
        let mut synced: Vec<_> = idle.map(|entry| entry.synced_at).collect();
        let mut left = synced.len().div_ceil(2);
        if left == 0 {
            return;
        }
        let (_, last, _) = synced.select_nth_unstable(left - 1);
        let last = *last;
        self.keep(|entry| {
            let goes = left > 0 && entry.is_idle() && entry.synced_at <= last;
            left -= usize::from(goes);
            !goes
        });
    }

    fn keep(&mut self, mut is_kept: impl FnMut(&Entry) -> bool) {
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
