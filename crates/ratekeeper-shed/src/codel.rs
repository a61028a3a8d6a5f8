//! A queue that drops what has waited too long, and serves the newest first under overload.

use std::collections::VecDeque;

use ratekeeper_core::{Micros, Timestamp};

/// The times of a [`PatientQueue`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct QueueTerms {
    /// The longest that an item waits while the queue was empty within [`Self::interval`].
    pub interval: Micros,
    /// The longest that an item waits in a queue that has not been empty for that long.
    pub target: Micros,
    /// The most items that wait.
    pub len_max: usize,
}

impl Default for QueueTerms {
    /// 100 ms, 5 ms and 1,024 items.
    fn default() -> Self {
        Self {
            interval: Micros::from_millis(100),
            target: Micros::from_millis(5),
            len_max: 1_024,
        }
    }
}

/// A bounded queue with controlled delay.
///
/// CoDel (Nichols and Jacobson, "Controlling Queue Delay", ACM Queue 2012; RFC 8289) tells a burst, which a queue
/// should absorb, from a standing queue, which only adds delay: a standing queue has not been empty for an
/// interval. For requests this takes the form that Facebook published (Maurer, "Fail at Scale", ACM Queue 2015):
///
/// ```text
/// empty within the last 100 ms:  first in, first out; an item may wait 100 ms
/// otherwise (overload):          last in, first out;  an item may wait   5 ms
/// ```
///
/// The newest first, because its client is the most likely to be still there.
#[derive(Clone, Debug)]
pub struct PatientQueue<T> {
    terms: QueueTerms,
    waiting: VecDeque<(Timestamp, T)>,
    /// The last time at which the queue was empty.
    empty_at: Timestamp,
}

/// An item that left a queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Popped<T> {
    /// Its turn has come.
    Turn(T),
    /// It has waited too long: refuse it.
    Stale(T),
}

impl<T> PatientQueue<T> {
    /// A queue that is empty at `now`.
    #[must_use]
    pub const fn new(terms: QueueTerms, now: Timestamp) -> Self {
        Self {
            terms,
            waiting: VecDeque::new(),
            empty_at: now,
        }
    }

    /// Changes the terms, also for those that wait already.
    pub const fn set_terms(&mut self, terms: QueueTerms) {
        self.terms = terms;
    }

    /// Takes out the items that `keep` does not want kept, such as those whose client has gone.
    pub fn retain(&mut self, mut keep: impl FnMut(&T) -> bool) {
        self.waiting.retain(|(_, item)| keep(item));
    }

    /// The number of waiting items.
    #[must_use]
    pub fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Returns true if nothing waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Lets `item` wait.
    ///
    /// # Errors
    /// The item itself, if the queue is full.
    pub fn push(&mut self, now: Timestamp, item: T) -> Result<(), T> {
        if self.waiting.is_empty() {
            self.empty_at = now;
        }
        if self.waiting.len() >= self.terms.len_max {
            return Err(item);
        }
        self.waiting.push_back((now, item));
        Ok(())
    }

    /// Returns true if the queue has not been empty for an interval.
    #[must_use]
    pub fn is_overloaded(&self, now: Timestamp) -> bool {
        !self.waiting.is_empty() && now.since(self.empty_at) > self.terms.interval
    }

    /// Takes the next item out: first those that have waited too long, from the oldest, then the one whose turn it is.
    pub fn pop(&mut self, now: Timestamp) -> Option<Popped<T>> {
        let is_overloaded = self.is_overloaded(now);
        if let Some(stale) = self.pop_stale(now) {
            return Some(Popped::Stale(stale));
        }
        let next = match is_overloaded {
            true => self.waiting.pop_back(),
            false => self.waiting.pop_front(),
        };
        self.mark_empty(now);
        next.map(|(_, item)| Popped::Turn(item))
    }

    /// Takes out the oldest item if it has waited too long.
    fn pop_stale(&mut self, now: Timestamp) -> Option<T> {
        let patience = match self.is_overloaded(now) {
            true => self.terms.target,
            false => self.terms.interval,
        };
        let (since, _) = self.waiting.front()?;
        if now.since(*since) <= patience {
            return None;
        }
        let (_, item) = self.waiting.pop_front()?;
        self.mark_empty(now);
        Some(item)
    }

    fn mark_empty(&mut self, now: Timestamp) {
        if self.waiting.is_empty() {
            self.empty_at = now;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(millis: u64) -> Timestamp {
        Timestamp::from_micros(millis * 1_000)
    }

    #[test]
    fn a_burst_is_served_in_order() {
        let mut queue = PatientQueue::new(QueueTerms::default(), ms(0));
        for item in 0..3 {
            assert_eq!(queue.push(ms(item), item), Ok(()));
        }
        let popped: Vec<_> = std::iter::from_fn(|| queue.pop(ms(99))).collect();
        let turns: Vec<_> = (0..3).map(Popped::Turn).collect();
        assert_eq!(popped, turns);
        assert_eq!(queue.pop(ms(100)), None);
    }

    #[test]
    fn a_standing_queue_drops_the_old_and_serves_the_newest() {
        let mut queue = PatientQueue::new(QueueTerms::default(), ms(0));
        for at in [0, 98, 99, 100, 101] {
            assert_eq!(queue.push(ms(at), at), Ok(()));
        }
        assert!(!queue.is_overloaded(ms(100)));
        assert_eq!(queue.pop(ms(101)), Some(Popped::Stale(0)));
        assert!(queue.is_overloaded(ms(101)));
        // 5 ms is not too long, one millisecond more is.
        assert_eq!(queue.pop(ms(103)), Some(Popped::Turn(101)));
        assert_eq!(queue.pop(ms(104)), Some(Popped::Stale(98)));
        assert_eq!(queue.pop(ms(104)), Some(Popped::Turn(100)));
        assert_eq!(queue.pop(ms(104)), Some(Popped::Turn(99)));
        assert_eq!(queue.pop(ms(104)), None);
        assert!(!queue.is_overloaded(ms(900)));
    }

    #[test]
    fn a_full_queue_hands_the_item_back() {
        let terms = QueueTerms {
            len_max: 1,
            ..QueueTerms::default()
        };
        let mut queue = PatientQueue::new(terms, ms(0));
        assert_eq!(queue.push(ms(0), 'a'), Ok(()));
        assert_eq!(queue.push(ms(0), 'b'), Err('b'));
        assert_eq!(queue.len(), 1);
    }

    #[test]
    fn a_clock_that_is_set_back_keeps_items_waiting_at_most_as_long_again() {
        let mut queue = PatientQueue::new(QueueTerms::default(), ms(1_000));
        assert_eq!(queue.push(ms(1_000), 1), Ok(()));
        assert_eq!(queue.pop_stale(ms(0)), None);
        assert_eq!(queue.pop(ms(0)), Some(Popped::Turn(1)));
    }
}
