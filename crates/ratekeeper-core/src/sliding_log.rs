//! `sliding_log`: every hit is remembered; hits in (now - w, now] + n <= limit.
//!
//! ```text
//!      |<-------- w -------->|
//!   x  | x     x x        x  | now       a hit leaves exactly w after it came
//! ```
//!
//! "Sliding window log" in <https://www.figma.com/blog/an-alternative-approach-to-rate-limiting/>.
//! Exact, and therefore what the other algorithms are measured against; memory grows with the
//! limit (16 bytes for each distinct microsecond), so limits above 10,000 are refused.
//!
//! Hits counted without fitting (`count_denied`) push the oldest out, so that a log never
//! holds more than its quota. A counter's time does not go back before its newest hit, unless
//! the clock went back by more than a window: then all hits move by one offset, the newest to
//! the time it is, and a charge writes that down, one of 0 hits too.
//!
//! State (heap): word 0 the sum of all hits kept, word 1 the index of the oldest entry, then
//! pairs of time and hits, oldest first.

use crate::ask::Finding;
use crate::{Ask, Heap, Limit, Micros, Outcome, Timestamp};

/// The first pair follows the sum and the index.
const HEADER: usize = 2;

/// The index of the oldest entry, in a heap with a header.
fn oldest(heap: &[u64]) -> usize {
    let oldest = usize::try_from(heap[1]).unwrap_or(usize::MAX);
    oldest.clamp(HEADER, heap.len())
}

/// A view of a log on the heap.
struct Log<'a> {
    sum: u64,
    entries: &'a [u64],
}

impl<'a> Log<'a> {
    fn read(heap: &'a [u64]) -> Self {
        match heap {
            [sum, _, ..] => Self {
                sum: *sum,
                entries: &heap[oldest(heap)..],
            },
            _ => Self {
                sum: 0,
                entries: &[],
            },
        }
    }

    fn pairs(&self) -> impl DoubleEndedIterator<Item = (u64, u64)> + '_ {
        self.entries.chunks_exact(2).map(|pair| (pair[0], pair[1]))
    }

    /// The time of the newest hit, once the `refund` newest ones are given back.
    fn newest(&self, mut refund: u64) -> Option<u64> {
        let kept = self.pairs().rev().find(|(_, hits)| {
            let kept = *hits > refund;
            refund = refund.saturating_sub(*hits);
            kept
        });
        kept.map(|(time, _)| time)
    }

    /// The time to use: never before the newest hit.
    fn now(&self, now: Timestamp) -> u64 {
        self.newest(0).unwrap_or(0).max(now.as_micros())
    }

    /// The number of pairs that have left the window, and the hits still in it.
    fn live(&self, window: Micros, now: Timestamp) -> (usize, u64) {
        let now = self.now(now);
        let mut gone = 0;
        let mut live = self.sum;
        for (_, hits) in self
            .pairs()
            .take_while(|(time, _)| time.saturating_add(window.get()) <= now)
        {
            gone += 1;
            live = live.saturating_sub(hits);
        }
        (gone, live)
    }
}

/// Returns by how much the newest hit is ahead of `now`, if by more than a window.
pub(crate) fn ahead(limit: &Limit, heap: &[u64], now: Timestamp) -> Option<u64> {
    let newest = Log::read(heap).newest(0)?;
    let ahead = newest.checked_sub(now.as_micros())?;
    (ahead > limit.window().get()).then_some(ahead)
}

/// Moves all hits back by `offset`.
#[cold]
fn bring_back(heap: &mut [u64], offset: u64) {
    let oldest = oldest(heap);
    for time in heap[oldest..].iter_mut().step_by(2) {
        *time = time.saturating_sub(offset);
    }
}

pub(crate) fn test(limit: &Limit, heap: &[u64], ask: Ask, now: Timestamp) -> Outcome {
    if let Some(offset) = ahead(limit, heap, now) {
        let mut moved = heap.to_vec();
        bring_back(&mut moved, offset);
        return test(limit, &moved, ask, now);
    }
    let log = Log::read(heap);
    let window = limit.window();
    let (gone, live) = log.live(window, now);
    let used = live.saturating_sub(ask.refund());
    let room = limit.quota().saturating_sub(used);
    let leaves = |time: u64| Timestamp::from_micros(time).after(window).since(now);
    let newest = if ask.spent(room) > 0 {
        Some(log.now(now))
    } else {
        log.newest(ask.refund())
    };
    let wait = |hits: u64| {
        // The oldest hits make room, one after the other.
        let mut missing = hits.saturating_add(used) - limit.quota();
        let last = log.pairs().skip(gone).find(|(_, hits)| {
            missing = missing.saturating_sub(*hits);
            missing == 0
        });
        last.map_or(Micros::ZERO, |(time, _)| leaves(time))
    };
    let outcome = Finding {
        capacity: limit.quota(),
        room,
        full_after: newest.map_or(Micros::ZERO, leaves),
    }
    .outcome(ask, wait, |_| match used {
        // This ask's own hits are the oldest.
        0 => leaves(log.now(now)),
        _ => wait(room + 1),
    });
    if ask.hits == 0 && used > limit.quota() {
        // The limit was lowered.
        return outcome.overdrawn(limit.quota());
    }
    outcome
}

pub(crate) fn charge(limit: &Limit, heap: &mut Heap, hits: i64, now: Timestamp) {
    if let Some(offset) = ahead(limit, heap, now) {
        bring_back(heap, offset);
    }
    let log = Log::read(heap);
    let (gone, live) = log.live(limit.window(), now);
    let time = log.now(now);
    let hits_in = hits.max(0).unsigned_abs().min(limit.quota());
    forget(heap, gone, live);
    // Counting denied hits may overfill the log: the oldest make room, as they would have left
    // first. A lowered quota alone drops nothing, so that raising it again keeps usage.
    let most = limit.quota().max(live);
    drop_oldest(heap, live.saturating_add(hits_in).saturating_sub(most));
    if hits_in > 0 {
        push(heap, time, hits_in);
    }
    drop_newest(heap, hits.min(0).unsigned_abs());
}

/// Drops the `gone` oldest pairs, leaving `sum` hits. Freed space is reused once it is half of the
/// log, so that the amortized cost of a charge is constant.
fn forget(heap: &mut Heap, gone: usize, sum: u64) {
    if heap.len() < HEADER {
        *heap = vec![0, HEADER as u64];
    }
    let oldest = (oldest(heap) + 2 * gone).min(heap.len());
    heap[0] = sum;
    heap[1] = oldest as u64;
    if oldest > HEADER && oldest * 2 >= heap.len() {
        heap.drain(HEADER..oldest);
        heap[1] = HEADER as u64;
    }
}

/// Adds `hits` at `time`, which is not before the newest entry.
fn push(heap: &mut Heap, time: u64, hits: u64) {
    heap[0] = heap[0].saturating_add(hits);
    let len = heap.len();
    if len >= oldest(heap) + 2 && heap[len - 2] == time {
        heap[len - 1] = heap[len - 1].saturating_add(hits);
    } else {
        heap.extend([time, hits]);
    }
}

/// Drops `excess` hits, oldest first.
fn drop_oldest(heap: &mut Heap, mut excess: u64) {
    let mut gone = 0;
    let mut oldest = oldest(heap);
    let mut sum = heap[0];
    while excess > 0 && heap.len() >= oldest + 2 {
        let taken = excess.min(heap[oldest + 1]);
        heap[oldest + 1] -= taken;
        sum = sum.saturating_sub(taken);
        excess -= taken;
        if heap[oldest + 1] == 0 {
            gone += 1;
            oldest += 2;
        }
    }
    forget(heap, gone, sum);
}

/// Gives back `refund` hits, newest first.
fn drop_newest(heap: &mut Heap, mut refund: u64) {
    let oldest = oldest(heap);
    while refund > 0 && heap.len() >= oldest + 2 {
        let newest = heap.len() - 1;
        let taken = refund.min(heap[newest]);
        heap[newest] -= taken;
        heap[0] = heap[0].saturating_sub(taken);
        refund -= taken;
        if heap[newest] == 0 {
            heap.truncate(newest - 1);
        }
    }
}

pub(crate) fn expires_at(limit: &Limit, heap: &[u64]) -> Timestamp {
    let newest = Log::read(heap).newest(0);
    newest.map_or(Timestamp::EPOCH, |time| {
        Timestamp::from_micros(time).after(limit.window())
    })
}

#[cfg(test)]
mod tests {
    use crate::{Algorithm, Limit, LimitSpec, Micros, Moment, Outcome, State, Timestamp};

    fn limit(quota: u64) -> Limit {
        let spec = LimitSpec::new(Algorithm::SlidingLog, quota, Micros::from_secs(1));
        Limit::try_new(spec).expect("a valid limit")
    }

    fn step(limit: &Limit, state: &mut State, hits: i64, micros: u64) -> Outcome {
        let at = Moment::at(Timestamp::from_micros(1_000_000_000 + micros));
        limit.step(state, hits, &at)
    }

    fn words(state: &State) -> usize {
        match state {
            State::Heap(heap) => heap.len(),
            State::Words(_) => 0,
        }
    }

    #[test]
    fn a_hit_leaves_exactly_a_window_after_it_came() {
        let limit = limit(2);
        let mut state = State::new(limit.shape());
        step(&limit, &mut state, 1, 0);
        step(&limit, &mut state, 1, 10);
        assert_eq!(
            step(&limit, &mut state, 1, 999_999).retry_after,
            Micros::new(1)
        );
        assert_eq!(
            step(&limit, &mut state, 2, 999_999).retry_after,
            Micros::new(11)
        );
        assert_eq!(step(&limit, &mut state, 1, 1_000_000).remaining, 0);
        assert_eq!(
            step(&limit, &mut state, 1, 1_000_001).retry_after,
            Micros::new(9)
        );
    }

    #[test]
    fn all_hits_come_back_where_the_first_has_left() {
        let limit = limit(4);
        let mut state = State::new(limit.shape());
        for micros in [0, 10, 20, 30] {
            step(&limit, &mut state, 1, micros);
        }
        assert_eq!(step(&limit, &mut state, -3, 1_000_005).remaining, 4);
        assert_eq!(step(&limit, &mut state, 0, 1_000_005).remaining, 4);
    }

    #[test]
    fn a_log_is_ahead_of_a_clock_that_went_back_by_more_than_a_window() {
        let limit = limit(4);
        let mut state = State::new(limit.shape());
        step(&limit, &mut state, 1, 2_000_000);
        let is_ahead = |micros: u64| {
            let now = Timestamp::from_micros(1_000_000_000 + micros);
            limit.is_ahead(state.as_ref(), now)
        };
        assert!(!is_ahead(1_000_000));
        assert!(is_ahead(999_999));
    }

    #[test]
    fn hits_of_one_microsecond_share_an_entry() {
        let limit = limit(10_000);
        let mut state = State::new(limit.shape());
        for _ in 0..5_000 {
            step(&limit, &mut state, 2, 0);
        }
        assert_eq!(words(&state), 4);
    }

    #[test]
    fn memory_follows_what_is_in_the_window() {
        let limit = limit(100);
        let mut state = State::new(limit.shape());
        // 100 hits a window for a thousand windows, then two.
        for hit in 0..100_000 {
            assert_eq!(
                step(&limit, &mut state, 1, hit * 10_000).remaining,
                99 - hit.min(99)
            );
            assert!(words(&state) <= 2 * 2 * 101 + 2);
        }
        step(&limit, &mut state, 1, 2_000_000_000);
        step(&limit, &mut state, 1, 2_000_000_001);
        assert!(words(&state) <= 2 * 2 + 2);
    }
}
