//! A node's copy of a synced counter.

use crate::fixed_window;
use crate::{Ask, Limit, MAX_COUNT, Micros, Moment, Outcome, State, Timestamp};

/// A (sub-)window of a counter.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Window {
    start: Timestamp,
    /// Hits of the other nodes, as of the store's last answer.
    others: u64,
    /// Hits that this node admitted, less those it gave back.
    own: i64,
    /// The part of `own` that the store has.
    added: i64,
    /// The number in this node's mark, as of the store's last answer.
    marked: u64,
    /// The store's time of that answer.
    heard_at: Timestamp,
    /// True after the store has lost counts: a smaller sum then says nothing about the other nodes.
    is_lossy: bool,
}

impl Window {
    const fn new(start: Timestamp) -> Self {
        Self {
            start,
            others: 0,
            own: 0,
            added: 0,
            marked: 0,
            heard_at: Timestamp::EPOCH,
            is_lossy: false,
        }
    }

    fn count(&self) -> u64 {
        self.others.saturating_add_signed(self.own).min(MAX_COUNT)
    }

    fn pending(&self) -> u64 {
        self.own.abs_diff(self.added)
    }
}

/// A node's total of one (sub-)window, for the store to add what is new of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Addition {
    /// The start of the (sub-)window.
    pub start: Timestamp,
    /// The number of the addition: larger than those of all earlier ones.
    pub number: u64,
    /// The hits that the node admitted in it, less those it gave back.
    pub total: i64,
    /// The time for which the store keeps the (sub-)window's count, from its first addition.
    pub kept: Micros,
}

/// The store's answer to an addition.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StoredSum {
    /// The hits of all nodes, after the addition.
    pub sum: u64,
    /// The number in the node's mark before the addition; 0 without a mark.
    pub marked_before: u64,
    /// The number in the node's mark after the addition; 0 without a mark.
    pub marked: u64,
}

/// The hits of a counter's (sub-)windows that still count, as one node knows them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct KnownHits {
    /// Hits that this node admitted.
    pub own: u64,
    /// Hits that the other nodes had added.
    pub others: u64,
    /// Hits of this node that the store does not have yet.
    pub pending: u64,
}

/// A node's copy of a synced counter.
///
/// All times are the store's, as far as the node knows them. The limit is that of [`SyncTerms`](super::SyncTerms), of the same
/// window and sub-windows in every call; its quota may change.
#[derive(Clone, PartialEq, Debug)]
pub struct SyncedCounter {
    /// The counts of all nodes, as the limit's algorithm keeps them.
    view: State,
    /// The newest first, without gaps. Empty before the first hit.
    parts: Vec<Window>,
    /// The number of the last addition.
    number: u64,
}

impl Default for SyncedCounter {
    fn default() -> Self {
        Self::new()
    }
}

impl SyncedCounter {
    /// A counter without hits, whose sums in the store are not known.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            view: State::Words([0; 4]),
            parts: Vec::new(),
            number: 0,
        }
    }

    /// The (sub-)windows that a counter of `limit` keeps.
    #[must_use]
    pub const fn parts_of(limit: &Limit) -> usize {
        match limit.cut() {
            Some(sub) => sub.count() as usize + 1,
            None => 1,
        }
    }

    /// The counter's answer to `ask`, by this node's hits and those it knows of.
    #[must_use]
    pub fn test(&self, limit: &Limit, ask: Ask, at: &Moment) -> Outcome {
        limit.test(self.view.as_ref(), ask, at)
    }

    /// Counts `hits`, or gives them back if negative. Returns hits of past windows that were never added to the store.
    pub fn charge(&mut self, limit: &Limit, hits: i64, at: &Moment) -> u64 {
        if hits == 0 && !limit.is_ahead(self.view.as_ref(), at.now) {
            return 0;
        }
        let mut dropped = self.reach(limit, at);
        // Counters start as words, and this one is on the heap wherever words may not do.
        let _ = limit.charge(self.view.as_mut(), hits, at);
        dropped += self.follow(limit);
        if hits >= 0 {
            if let Some(newest) = self.parts.first_mut() {
                newest.own = newest.own.saturating_add(hits).min(MAX_COUNT.cast_signed());
            }
            return dropped;
        }
        // A refund takes the newest hits, of whichever sub-windows.
        for age in 0..self.parts.len() {
            let after = self.viewed(limit, age);
            let part = &mut self.parts[age];
            let taken = part.count().saturating_sub(after);
            part.own = part.own.saturating_sub_unsigned(taken);
        }
        dropped
    }

    /// The totals to add to the store at `at`, and the (sub-)windows to hear of; adds up hits of past windows that were
    /// never added to the store in `dropped`.
    pub fn additions(
        &mut self,
        limit: &Limit,
        interval: Micros,
        at: &Moment,
        dropped: &mut u64,
    ) -> Vec<Addition> {
        *dropped += self.reach(limit, at);
        self.number += 1;
        let (number, kept) = (self.number, Self::kept(limit));
        // By its newest mark a node notices that the store has lost counts.
        let marked = self.parts.iter().position(|part| part.marked > 0);
        let parts = self.parts.iter().enumerate();
        let due = parts.filter(|(age, part)| {
            let is_read = *age == 0 || Some(*age) == marked;
            is_read || part.own != part.added || !Self::is_settled(limit, interval, part)
        });
        due.map(|(_, part)| Addition {
            start: part.start,
            number,
            total: part.own,
            kept,
        })
        .collect()
    }

    /// Takes in the store's answers to the last additions, given at `now`. Returns the hits that it has had since.
    pub fn apply_answer(
        &mut self,
        limit: &Limit,
        answers: impl IntoIterator<Item = (Addition, StoredSum)>,
        now: Timestamp,
    ) -> u64 {
        let (mut applied, mut has_lost) = (0, false);
        for (addition, stored) in answers {
            let is_it = |part: &&mut Window| part.start == addition.start;
            let Some(part) = self.parts.iter_mut().find(is_it) else {
                continue;
            };
            if addition.number != self.number {
                // Another one was sent since, whose answer tells more.
                continue;
            }
            applied += addition.total.abs_diff(part.added);
            part.added = addition.total;
            let is_lost = stored.marked_before < part.marked;
            part.is_lossy |= is_lost;
            has_lost |= is_lost;
            part.marked = stored.marked;
            part.heard_at = now;
            let others = stored
                .sum
                .saturating_add_signed(addition.total.saturating_neg());
            part.others = match part.is_lossy {
                true => part.others.max(others),
                false => others,
            };
        }
        if has_lost {
            // The other (sub-)windows are lost as well.
            self.doubt();
        }
        self.show(limit);
        applied
    }

    /// The hits of this node that the store does not have.
    #[must_use]
    pub fn pending(&self) -> u64 {
        self.parts.iter().map(Window::pending).sum()
    }

    /// The hits that still count at `at`.
    #[must_use]
    pub fn known(&self, limit: &Limit, at: &Moment) -> KnownHits {
        let current = start_of(limit, at);
        let oldest = match limit.cut() {
            Some(sub) => {
                let span = u64::from(sub.count()) * sub.length().get();
                current.as_micros().saturating_sub(span)
            }
            None => current.as_micros(),
        };
        let counts = |part: &&Window| part.start.as_micros() >= oldest;
        let parts = self.parts.iter().filter(counts);
        parts.fold(KnownHits::default(), |known, part| KnownHits {
            own: known.own + u64::try_from(part.own).unwrap_or(0),
            others: known.others + part.others,
            pending: known.pending + part.pending(),
        })
    }

    /// The time from which the counter is as a new one.
    #[must_use]
    pub fn expires_at(&self, limit: &Limit, at: &Moment) -> Timestamp {
        limit.expires_at(self.view.as_ref(), at)
    }

    /// The time for which the store keeps a (sub-)window's count: at least until it no longer counts.
    fn kept(limit: &Limit) -> Micros {
        /// For additions that are late.
        const MARGIN: Micros = Micros::from_secs(10);
        let parts = Self::parts_of(limit) as u64;
        let span = part_length(limit).get().saturating_mul(parts);
        let span = span.max(limit.counts_for().get());
        Micros::new(span.saturating_add(MARGIN.get()))
    }

    /// Returns true if the other nodes had the time to add their hits of `part` before the store last told its sum.
    fn is_settled(limit: &Limit, interval: Micros, part: &Window) -> bool {
        /// For nodes whose syncs are late.
        const MARGIN: Micros = Micros::from_secs(1);
        let late = interval
            .get()
            .saturating_mul(2)
            .saturating_add(MARGIN.get());
        let over = part
            .start
            .after(part_length(limit))
            .after(Micros::new(late));
        part.heard_at > over
    }

    /// Forgets that the store was heard of lately: other nodes may be late with their additions.
    pub fn doubt(&mut self) {
        for part in &mut self.parts {
            part.heard_at = Timestamp::EPOCH;
        }
    }

    /// Moves on to the (sub-)window of `at`, if that is later. Returns the hits dropped.
    fn reach(&mut self, limit: &Limit, at: &Moment) -> u64 {
        let start = start_of(limit, at);
        if self
            .parts
            .first()
            .is_some_and(|newest| start <= newest.start)
        {
            return 0;
        }
        let dropped = self.move_to(limit, start);
        self.show(limit);
        dropped
    }

    /// Moves to the (sub-)window that the view is in. Returns the hits dropped.
    fn follow(&mut self, limit: &Limit) -> u64 {
        let start = match (limit.cut(), &self.view) {
            (Some(sub), view) => sub.start(sub.index(view.as_ref())),
            (None, State::Words(words)) => Timestamp::from_micros(words[1]),
            (None, State::Heap(_)) => Timestamp::EPOCH,
        };
        let newest = self.parts.first().map_or(start, |newest| newest.start);
        if start > newest {
            return self.move_to(limit, start);
        }
        if start < newest {
            self.move_back(newest.since(start));
        }
        0
    }

    /// The store's clock went back by more than the window: each part keeps its age and its hits, which are added again.
    fn move_back(&mut self, by: Micros) {
        for part in &mut self.parts {
            let start = part.start.as_micros().saturating_sub(by.get());
            *part = Window {
                others: part.others,
                own: part.own,
                ..Window::new(Timestamp::from_micros(start))
            };
        }
    }

    /// Makes the (sub-)window at `start`, which is later than all, the newest. Returns the hits dropped.
    fn move_to(&mut self, limit: &Limit, start: Timestamp) -> u64 {
        let (most, length) = (Self::parts_of(limit), part_length(limit).get());
        let newest = self.parts.first().map(|newest| newest.start);
        let new = match newest {
            Some(newest) if most > 1 => start.since(newest).get() / length,
            _ => most as u64,
        };
        let new = usize::try_from(new).map_or(most, |new| new.min(most));
        let gone = self.parts.split_off(self.parts.len().min(most - new));
        let starts = (0..new as u64).map(|age| start.as_micros().saturating_sub(age * length));
        let fresh = starts.map(|start| Window::new(Timestamp::from_micros(start)));
        self.parts.splice(0..0, fresh);
        gone.iter().map(Window::pending).sum()
    }

    /// Writes the counts into the view.
    fn show(&mut self, limit: &Limit) {
        let Some(newest) = self.parts.first() else {
            return;
        };
        let Some(sub) = limit.cut() else {
            self.view = State::Words([newest.count(), newest.start.as_micros(), 0, 0]);
            return;
        };
        let counts = self.parts.iter().map(Window::count);
        let index = sub.index_at(newest.start);
        match &mut self.view {
            State::Heap(heap) => sub.list(index, counts, heap),
            State::Words(_) => {
                let mut heap = Vec::new();
                sub.list(index, counts, &mut heap);
                self.view = State::Heap(heap);
            }
        }
    }

    /// The count in the view of the part of that age.
    fn viewed(&self, limit: &Limit, age: usize) -> u64 {
        match (limit.cut(), &self.view) {
            (Some(sub), State::Heap(heap)) => sub.listed(heap, age as u64),
            (_, State::Words(words)) => words[0],
            (None, State::Heap(_)) => 0,
        }
    }
}

/// The length of a (sub-)window.
const fn part_length(limit: &Limit) -> Micros {
    match limit.cut() {
        Some(sub) => sub.length(),
        None => limit.window(),
    }
}

/// The start of the (sub-)window of `at`.
fn start_of(limit: &Limit, at: &Moment) -> Timestamp {
    match limit.cut() {
        Some(sub) => sub.start(sub.index_at(at.now)),
        None => fixed_window::start_at(limit, at),
    }
}
