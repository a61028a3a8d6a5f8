//! Counters that a node keeps by itself and adds to a shared store from time to time.
//!
//! [`SyncedCounters`] decides in memory, and says which counters are due. Whoever has the connection to the store takes
//! them ([`SyncedCounters::take_due`]), sends their [additions](SyncedCounters::begin) and hands the answers back
//! ([`SyncedCounters::apply_answer`]), or says that there was none ([`SyncedCounters::failed`]). The protocol is
//! [`ratekeeper_core::synced`].
//!
//! ```text
//!            first asked                      is due, asked since
//!  asleep ---------------> waiting for its turn ----------------> under way
//!     ^                      |          ^                             |
//!     `-- is due, not asked -'          `--- an answer, or none ------'
//! ```
//!
//! Counters of one interval are due together, once in an interval. One that is not asked for costs nothing.

mod decide;
mod gauges;
mod table;

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};

use parking_lot::Mutex;
use ratekeeper_core::synced::{Addition, StoredSum};
use ratekeeper_core::{Micros, Timestamp};

use crate::{CounterKey, Step};
pub use gauges::{SyncGauges, SyncedHits};
use table::{Phase, Shard};

/// Locks that the counters are spread over.
const PARTS: usize = 64;

/// The (sub-)windows that all counters of a node have together, at most: some 64 MiB.
const WINDOWS_MAX: usize = 1 << 20;

/// A node's synced counters, of one store.
#[derive(Debug)]
pub struct SyncedCounters {
    parts: Box<[Mutex<Shard>]>,
    /// The counters that wait for their turn; the next one first.
    turns: Mutex<BinaryHeap<Reverse<(Micros, CounterKey)>>>,
    /// The time by which this node's turns are apart from those of other nodes.
    phase: u64,
    /// The store's clock less the boot clock, as last told by any answer; before the first one, as the last request had it.
    ahead: AtomicI64,
    is_ahead_known: AtomicBool,
    is_closed: AtomicBool,
}

/// The additions of a counter whose turn has come.
#[derive(Clone, PartialEq, Debug)]
pub struct SyncTurn {
    /// The counter.
    pub key: CounterKey,
    /// A number for this counter's life in this node: one that was forgotten and comes back has another.
    pub life: u64,
    /// The hits to add, and the counters to hear of.
    pub additions: Vec<Addition>,
}

/// The time of an answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AnsweredAt {
    /// The store's clock when it answered.
    pub store: Timestamp,
    /// The boot clock before the call was sent.
    pub sent: Micros,
    /// The boot clock when the answer was there.
    pub heard: Micros,
}

impl AnsweredAt {
    /// The store's clock less the boot clock. `known` stays, if it may still be right.
    fn ahead(self, known: Option<i64>) -> i64 {
        let store = self.store.as_micros().cast_signed();
        let least = store - self.heard.get().cast_signed();
        let most = store - self.sent.get().cast_signed();
        match known {
            Some(known) if (least..=most).contains(&known) => known,
            _ => least + (most - least) / 2,
        }
    }
}

impl SyncedCounters {
    /// Makes room for counters. `seed` is random, another one for each node.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        let parts = (0..PARTS).map(|_| Mutex::new(Shard::new(WINDOWS_MAX / PARTS)));
        Self {
            parts: parts.collect(),
            turns: Mutex::default(),
            phase: seed,
            ahead: AtomicI64::new(0),
            is_ahead_known: AtomicBool::new(false),
            is_closed: AtomicBool::new(false),
        }
    }

    /// The time at which the next counter has its turn.
    #[must_use]
    pub fn next_due(&self) -> Option<Micros> {
        self.turns.lock().peek().map(|Reverse((due, _))| *due)
    }

    /// Takes up to `most` counters that are due at `now`.
    #[must_use]
    pub fn take_due(&self, now: Micros, most: usize) -> Vec<CounterKey> {
        let mut turns = self.turns.lock();
        let mut due = Vec::new();
        while due.len() < most
            && let Some(Reverse((at, key))) = turns.peek().copied()
            && at <= now
        {
            turns.pop();
            due.push(key);
        }
        due
    }

    /// Begins the sync of a counter that is due. [`None`] if it was not asked for since the last one, and there is nothing to
    /// add.
    #[must_use]
    pub fn begin(&self, key: CounterKey, now: Micros) -> Option<SyncTurn> {
        let default = self.default_ahead();
        let part = &mut *self.part(key).lock();
        let entry = part.entries.get_mut(&key)?;
        if !matches!(entry.phase, Phase::Waiting) {
            return None;
        }
        if !entry.is_asked && entry.counter.pending() == 0 {
            entry.phase = Phase::Asleep;
            return None;
        }
        let at = entry.moment(entry.ahead.unwrap_or(default), now);
        let mut dropped = 0;
        let (limit, interval) = (entry.limit, entry.interval);
        let additions = entry.counter.additions(&limit, interval, &at, &mut dropped);
        part.counts.dropped += dropped;
        entry.phase = Phase::UnderWay;
        entry.is_asked = false;
        Some(SyncTurn {
            key,
            life: entry.life,
            additions,
        })
    }

    /// Takes in the store's answers to the additions of `turn`. Returns true if the counter is now due before all others:
    /// whoever waits for the next turn has to be woken.
    pub fn apply_answer(&self, turn: &SyncTurn, answers: &[StoredSum], at: AnsweredAt) -> bool {
        let known = self.known_ahead();
        let part = &mut *self.part(turn.key).lock();
        part.counts.synced += 1;
        let ahead = at.ahead(known);
        self.ahead.store(ahead, Ordering::Relaxed);
        self.is_ahead_known.store(true, Ordering::Relaxed);
        let Some(entry) = part.entries.get_mut(&turn.key) else {
            return false;
        };
        if entry.life != turn.life {
            return false;
        }
        entry.ahead = Some(at.ahead(entry.ahead));
        entry.synced_at = Some(at.heard);
        let answers = turn.additions.iter().copied().zip(answers.iter().copied());
        part.counts.applied += entry.counter.apply_answer(&entry.limit, answers, at.store);
        let interval = entry.interval;
        entry.phase = Phase::Waiting;
        self.wait(turn.key, at.heard, interval)
    }

    /// Records that there was no answer to `turn`: it is tried again in the next interval. Returns true as
    /// [`apply_answer`](Self::apply_answer) does.
    pub fn failed(&self, turn: &SyncTurn, now: Micros) -> bool {
        let default = self.default_ahead();
        let part = &mut *self.part(turn.key).lock();
        part.counts.failed += 1;
        let Some(entry) = part.entries.get_mut(&turn.key) else {
            return false;
        };
        if entry.life != turn.life {
            return false;
        }
        entry.counter.doubt();
        entry.phase = Phase::Waiting;
        // Nodes that were cut off want to know of the others, even if no request comes in this interval; but not of windows
        // that are over, or counters of made-up keys would fill the table.
        let at = entry.moment(entry.ahead.unwrap_or(default), now);
        let known = entry.counter.known(&entry.limit, &at);
        entry.is_asked |= known.own > 0 || known.others > 0;
        let interval = entry.interval;
        self.wait(turn.key, now, interval)
    }

    /// Makes all counters with hits to add due at once, and lets none wait for a turn from then on.
    pub fn close(&self) {
        self.is_closed.store(true, Ordering::Relaxed);
        for part in &self.parts {
            let part = part.lock();
            let unsent = part.entries.iter();
            let unsent = unsent.filter(|(_, entry)| entry.counter.pending() > 0);
            let mut turns = self.turns.lock();
            turns.extend(unsent.map(|(key, _)| Reverse((Micros::ZERO, *key))));
        }
    }

    /// The hits of the step's counter; all zero if this node has none.
    #[must_use]
    pub fn known(&self, step: &Step, now: Micros) -> SyncedHits {
        let default = self.default_ahead();
        let part = self.part(step.key).lock();
        let mut known = SyncedHits {
            interval: step.sync,
            ..SyncedHits::default()
        };
        if let Some(entry) = part.entries.get(&step.key) {
            let at = entry.moment(entry.ahead.unwrap_or(default), now);
            let hits = entry.counter.known(&entry.limit, &at);
            (known.own, known.others, known.pending) = (hits.own, hits.others, hits.pending);
            known.age = entry
                .synced_at
                .map(|at| Micros::new(now.get().saturating_sub(at.get())));
        }
        known
    }

    /// Forgets counters that no longer count, in one of the locks' parts, the next one each time.
    pub fn sweep(&self, turn: usize, now: Micros) {
        let default = self.default_ahead();
        self.parts[turn % PARTS].lock().sweep(default, now);
    }

    /// The counts since the start, and what is there now.
    #[must_use]
    pub fn gauges(&self) -> SyncGauges {
        let mut gauges = SyncGauges {
            due: self.turns.lock().len() as u64,
            ..SyncGauges::default()
        };
        for part in &self.parts {
            let part = part.lock();
            gauges.counters += part.entries.len() as u64;
            gauges.synced += part.counts.synced;
            gauges.failed += part.counts.failed;
            gauges.applied += part.counts.applied;
            gauges.dropped += part.counts.dropped;
            gauges.refused += part.counts.refused;
            gauges.pending += part
                .entries
                .values()
                .map(|it| it.counter.pending())
                .sum::<u64>();
        }
        gauges
    }

    /// Puts the counter in line for the next turn of its interval. Returns true if it is due before all others.
    fn wait(&self, key: CounterKey, now: Micros, interval: Micros) -> bool {
        let interval = interval.get().max(1);
        let phase = self.phase % interval;
        // Counters of one interval have their turns at the same times.
        let gone = (now.get() + interval - phase) % interval;
        let due = match self.is_closed.load(Ordering::Relaxed) {
            true => now,
            false => Micros::new(now.get() + interval - gone),
        };
        self.line_up(due, key)
    }

    /// Puts the counter in line. Returns true if it is due before all others.
    fn line_up(&self, due: Micros, key: CounterKey) -> bool {
        let turn = Reverse((due, key));
        let mut turns = self.turns.lock();
        let is_first = turns.peek().is_none_or(|first| turn > *first);
        turns.push(turn);
        is_first
    }

    fn known_ahead(&self) -> Option<i64> {
        let is_known = self.is_ahead_known.load(Ordering::Relaxed);
        is_known.then(|| self.ahead.load(Ordering::Relaxed))
    }

    /// The clock of a request at `now`, less the boot clock: it counts until the store has told its own, also where windows
    /// pass without a request.
    fn guess_ahead(&self, request: Timestamp, now: Micros) -> i64 {
        let ahead = request.as_micros().cast_signed() - now.get().cast_signed();
        // Relaxed: a guess that is late stays until the next answer.
        self.ahead.store(ahead, Ordering::Relaxed);
        ahead
    }

    fn default_ahead(&self) -> i64 {
        self.ahead.load(Ordering::Relaxed)
    }

    #[allow(clippy::cast_possible_truncation, reason = "only the low bits count")]
    fn part(&self, key: CounterKey) -> &Mutex<Shard> {
        &self.parts[Self::part_of(key)]
    }

    #[allow(clippy::cast_possible_truncation, reason = "only the low bits count")]
    const fn part_of(key: CounterKey) -> usize {
        (key.subject ^ key.identity) as usize % PARTS
    }
}
