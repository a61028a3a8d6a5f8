//! `concurrency`: in flight + 1 <= limit. A permit is held until it is released, or until its
//! deadline if its holder was lost.
//!
//! ```text
//!  limit 2   a |=========|released
//!            b   |=================...|reaped at its deadline
//!            c     . refused  |====
//! ```
//!
//! Stripe's "concurrent requests limiter", <https://stripe.com/blog/rate-limiters>. Exact while
//! holders release or renew in time; a holder that outlives its deadline unseen is one too many.
//!
//! State (heap): word 0 a time before which no permit expires, word 1 one at which all have, then
//! triples of a permit's id (two words, high first) and its deadline: 24 bytes a permit held, so
//! limits above 100,000 are refused. A permit that was taken more than its timeout after the time
//! it is, by a clock that went back since, ends as one that is taken now; a charge writes that
//! down, one of 0 hits too. A charge without an id holds a nameless permit, which only
//! its deadline ends. A refund changes nothing, since it does not say whose permit it means:
//! edges refuse it.

use crate::ask::Finding;
use crate::{Ask, Heap, Limit, Micros, Outcome, Timestamp, Verdict};

/// The retry time after a denial: a guess, since the time of the next release is unknown.
pub const RETRY_HINT: Micros = Micros::from_secs(1);

/// Words before the permits: the earliest and the latest deadline.
const HEADER: usize = 2;

/// Words of one permit.
const PERMIT: usize = 3;

fn permits(heap: &[u64]) -> std::slice::ChunksExact<'_, u64> {
    heap.get(HEADER..).unwrap_or(&[]).chunks_exact(PERMIT)
}

#[expect(clippy::cast_possible_truncation, reason = "the two halves of the id")]
fn id_words(id: u128) -> [u64; 2] {
    [(id >> 64) as u64, id as u64]
}

/// The permits held at `now`; counted one by one only if some may have expired.
fn held(heap: &[u64], now: Timestamp) -> u64 {
    match heap.first() {
        Some(earliest) if *earliest <= now.as_micros() => permits(heap)
            .filter(|permit| permit[2] > now.as_micros())
            .count() as u64,
        _ => permits(heap).len() as u64,
    }
}

/// The permits of a counter, reduced to what the answers depend on, for a store that keeps permits
/// in its own form.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Held {
    /// Permits held.
    pub count: u64,
    /// True if the permit in question is one of them.
    pub this_one: bool,
}

impl Held {
    /// The answer to a step without a permit id.
    #[must_use]
    pub fn test(self, limit: &Limit, ask: Ask) -> Outcome {
        let room = limit.quota().saturating_sub(self.count);
        let finding = Finding {
            capacity: limit.quota(),
            room,
            full_after: Micros::ZERO,
        };
        let hits = ask.hits.max(0);
        let more = |spent| hint(room - spent);
        let mut outcome = finding.outcome(Ask { hits, ..ask }, |_| RETRY_HINT, more);
        if ask.hits < 0 {
            // A refund only looks, and gets no retry time.
            outcome.retry_after = Micros::ZERO;
        }
        outcome
    }

    /// The answer of [`acquire`]; `taken` as for [`ask`].
    #[must_use]
    pub fn acquire(self, limit: &Limit, taken: u64) -> Outcome {
        if !self.this_one && taken == 0 {
            return self.test(limit, Ask::hits(1));
        }
        let room = limit.quota().saturating_sub(self.count);
        of_holder(room.saturating_sub(u64::from(!self.this_one)))
    }

    /// The answer of [`renew`] or, with `frees`, of [`release`], as in [`ask_holder`].
    #[must_use]
    pub fn settle(self, limit: &Limit, frees: bool) -> Outcome {
        let count = self.count.saturating_sub(u64::from(self.this_one && frees));
        let mut outcome = of_holder(limit.quota().saturating_sub(count));
        if !self.this_one {
            outcome.verdict = Verdict::Never;
        }
        outcome
    }

    fn of(heap: &[u64], id: u128, now: Timestamp) -> Self {
        Self {
            count: held(heap, now),
            this_one: is_held(heap, id, now),
        }
    }
}

pub(crate) fn test(limit: &Limit, heap: &[u64], ask: Ask, now: Timestamp) -> Outcome {
    let held = Held {
        count: held(heap, now),
        this_one: false,
    };
    held.test(limit, ask)
}

pub(crate) fn charge(limit: &Limit, heap: &mut Heap, hits: i64, now: Timestamp) {
    bring_back(limit, heap, now);
    reap(heap, now);
    let room = limit.quota().saturating_sub(held(heap, now));
    for _ in 0..hits.max(0).unsigned_abs().min(room) {
        hold(limit, heap, 0, now);
    }
}

fn hold(limit: &Limit, heap: &mut Heap, id: u128, now: Timestamp) {
    if heap.len() < HEADER {
        *heap = vec![u64::MAX, 0];
    }
    let [high, low] = id_words(id);
    let deadline = now.after(limit.window()).as_micros();
    heap[0] = heap[0].min(deadline);
    heap[1] = heap[1].max(deadline);
    heap.extend([high, low, deadline]);
}

/// Returns true if no permit is free, and some expire more than two timeouts from now.
pub(crate) fn is_ahead(limit: &Limit, heap: &[u64], now: Timestamp) -> bool {
    let far = now.after(limit.window()).after(limit.window()).as_micros();
    heap.get(1).is_some_and(|latest| *latest > far) && held(heap, now) >= limit.quota()
}

/// Changes permits that are too far ahead to expire as if they were taken now.
fn bring_back(limit: &Limit, heap: &mut Heap, now: Timestamp) {
    let deadline = now.after(limit.window());
    let far = deadline.after(limit.window()).as_micros();
    // While permits are free, no caller waits for these.
    if !is_ahead(limit, heap, now) {
        return;
    }
    let deadline = deadline.as_micros();
    heap[0] = heap[0].min(deadline);
    for permit in heap[HEADER..].chunks_exact_mut(PERMIT) {
        if permit[2] > far {
            permit[2] = deadline;
        }
    }
    let latest = permits(heap).map(|permit| permit[2]).max();
    heap[1] = latest.unwrap_or(0);
}

/// Removes expired permits.
fn reap(heap: &mut Heap, now: Timestamp) {
    if heap
        .first()
        .is_none_or(|earliest| *earliest > now.as_micros())
    {
        return;
    }
    let mut earliest = u64::MAX;
    let mut kept = HEADER;
    let end = HEADER + permits(heap).len() * PERMIT;
    for permit in (HEADER..end).step_by(PERMIT) {
        let deadline = heap[permit + 2];
        if deadline > now.as_micros() {
            earliest = earliest.min(deadline);
            heap.copy_within(permit..permit + PERMIT, kept);
            kept += PERMIT;
        }
    }
    heap.truncate(kept);
    heap[0] = earliest;
}

/// Returns true if the permit `id` is held at `now`.
#[must_use]
pub fn is_held(heap: &[u64], id: u128, now: Timestamp) -> bool {
    permits(heap).any(|permit| permit[..2] == id_words(id) && permit[2] > now.as_micros())
}

/// The answer of [`acquire`]; changes nothing. `taken` is 1 if an earlier step of the same request
/// takes this permit from this counter, else 0.
#[must_use]
pub fn ask(limit: &Limit, heap: &[u64], id: u128, taken: u64, now: Timestamp) -> Outcome {
    Held::of(heap, id, now).acquire(limit, taken)
}

/// The answer of [`renew`] or, with `frees`, of [`release`]; changes nothing. The verdict is
/// [`Verdict::Never`] if the permit is not held, and therefore never will be again.
#[must_use]
pub fn ask_holder(limit: &Limit, heap: &[u64], id: u128, frees: bool, now: Timestamp) -> Outcome {
    Held::of(heap, id, now).settle(limit, frees)
}

/// The hint when more will be free than `remaining`: unknown, but zero while permits are free.
const fn hint(remaining: u64) -> Micros {
    match remaining {
        0 => RETRY_HINT,
        _ => Micros::ZERO,
    }
}

/// The answer to the holder of a permit.
fn of_holder(remaining: u64) -> Outcome {
    Outcome {
        verdict: Verdict::Fits,
        remaining,
        reset_after: hint(remaining),
        full_after: Micros::ZERO,
        retry_after: Micros::ZERO,
        delay: Micros::ZERO,
        cut: 0,
    }
}

/// Takes one permit under `id`, which the caller makes unique (128 random bits), until
/// `limit.window()` from `now`. The counter changes only if the permit fits. A permit that is
/// already held is renewed: a caller that got no answer may repeat the request.
pub fn acquire(limit: &Limit, heap: &mut Heap, id: u128, now: Timestamp) -> Outcome {
    let outcome = ask(limit, heap, id, 0, now);
    if outcome.fits() && !renew(limit, heap, id, now) {
        hold(limit, heap, id, now);
    }
    outcome
}

/// Releases the permit `id`. False if it is not held: released before, or expired.
pub fn release(heap: &mut Heap, id: u128, now: Timestamp) -> bool {
    reap(heap, now);
    let found = permits(heap).position(|permit| permit[..2] == id_words(id));
    if let Some(index) = found {
        let last = heap.len() - PERMIT;
        heap.copy_within(last.., HEADER + index * PERMIT);
        heap.truncate(last);
    }
    found.is_some()
}

/// Moves the deadline of the permit `id` to `limit.window()` from `now`. False if it is not
/// held any more: its place may have been given away.
pub fn renew(limit: &Limit, heap: &mut Heap, id: u128, now: Timestamp) -> bool {
    bring_back(limit, heap, now);
    reap(heap, now);
    let deadline = now.after(limit.window()).as_micros();
    let Some(index) = permits(heap).position(|permit| permit[..2] == id_words(id)) else {
        return false;
    };
    let permit = HEADER + index * PERMIT;
    heap[permit + 2] = heap[permit + 2].max(deadline);
    heap[1] = heap[1].max(deadline);
    true
}

pub(crate) fn expires_at(heap: &[u64]) -> Timestamp {
    Timestamp::from_micros(heap.get(1).copied().unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::{RETRY_HINT, acquire, ask, ask_holder, is_held, release, renew};
    use crate::{Algorithm, Heap, Limit, LimitSpec, Micros, Timestamp, Verdict};

    fn limit() -> Limit {
        let spec = LimitSpec::new(Algorithm::Concurrency, 2, Micros::from_secs(60));
        Limit::try_new(spec).expect("a valid limit")
    }

    fn at(micros: u64) -> Timestamp {
        Timestamp::from_micros(1_000_000_000 + micros)
    }

    #[test]
    fn a_permit_is_held_until_it_is_given_back() {
        let (limit, mut heap) = (limit(), Heap::new());
        assert_eq!(acquire(&limit, &mut heap, 1, at(0)).remaining, 1);
        assert_eq!(acquire(&limit, &mut heap, 2, at(0)).remaining, 0);
        let refused = acquire(&limit, &mut heap, 3, at(0));
        assert_eq!(
            (refused.verdict, refused.retry_after),
            (Verdict::Later, RETRY_HINT)
        );
        assert!(release(&mut heap, 1, at(0)));
        assert!(!release(&mut heap, 1, at(0)), "once");
        assert!(acquire(&limit, &mut heap, 3, at(0)).fits());
    }

    #[test]
    fn a_lost_permit_is_reaped_at_its_deadline() {
        let (limit, mut heap) = (limit(), Heap::new());
        acquire(&limit, &mut heap, 1, at(0));
        acquire(&limit, &mut heap, 2, at(1));
        assert!(!acquire(&limit, &mut heap, 3, at(59_999_999)).fits());
        assert_eq!(acquire(&limit, &mut heap, 3, at(60_000_000)).remaining, 0);
        assert!(
            !release(&mut heap, 1, at(60_000_000)),
            "its place was given away"
        );
    }

    #[test]
    fn a_permit_asked_for_twice_is_held_once() {
        let (limit, mut heap) = (limit(), Heap::new());
        for micros in [0, 59_999_999] {
            assert_eq!(acquire(&limit, &mut heap, 1, at(micros)).remaining, 1);
        }
        assert!(is_held(&heap, 1, at(119_999_998)), "renewed");
        assert!(!is_held(&heap, 1, at(119_999_999)));
        let together = ask(&limit, &heap, 2, 1, at(60_000_000));
        assert_eq!((together.fits(), together.remaining), (true, 0));
        let freed = ask_holder(&limit, &heap, 1, true, at(60_000_000));
        assert_eq!((freed.fits(), freed.remaining), (true, 2));
        let lost = ask_holder(&limit, &heap, 1, false, at(119_999_999));
        assert_eq!((lost.verdict, lost.remaining), (Verdict::Never, 2));
    }

    #[test]
    fn a_renewed_permit_is_held_for_another_timeout() {
        let (limit, mut heap) = (limit(), Heap::new());
        acquire(&limit, &mut heap, 1, at(0));
        assert!(renew(&limit, &mut heap, 1, at(59_999_999)));
        assert!(release(&mut heap, 1, at(119_999_998)));
        acquire(&limit, &mut heap, 2, at(119_999_998));
        assert!(
            !renew(&limit, &mut heap, 2, at(179_999_998)),
            "reaped at this very tick"
        );
    }

    #[test]
    fn renewing_one_permit_leaves_the_others_their_deadlines() {
        let (limit, mut heap) = (limit(), Heap::new());
        acquire(&limit, &mut heap, 1, at(0));
        acquire(&limit, &mut heap, 2, at(0));
        assert!(renew(&limit, &mut heap, 2, at(1)));
        assert!(!is_held(&heap, 1, at(60_000_000)));
        assert!(is_held(&heap, 2, at(60_000_000)));
        assert!(!is_held(&heap, 2, at(60_000_001)));
    }

    #[test]
    fn ids_that_differ_in_one_half_are_two_permits() {
        let (limit, mut heap) = (limit(), Heap::new());
        let (low, high) = (1, 1 | 1 << 64);
        acquire(&limit, &mut heap, low, at(0));
        assert!(!is_held(&heap, high, at(0)));
        assert!(!release(&mut heap, high, at(0)));
        assert_eq!(acquire(&limit, &mut heap, high, at(0)).remaining, 0);
    }

    #[test]
    fn only_a_held_permit_that_is_released_makes_room() {
        let (limit, mut heap) = (limit(), Heap::new());
        acquire(&limit, &mut heap, 1, at(0));
        for (id, frees, remaining) in [(1, true, 2), (1, false, 1), (2, true, 1), (2, false, 1)] {
            let answer = ask_holder(&limit, &heap, id, frees, at(0));
            assert_eq!(answer.remaining, remaining, "{id} {frees}");
        }
    }

    #[test]
    fn a_deadline_of_just_two_timeouts_from_now_is_left() {
        let (limit, mut heap) = (limit(), Heap::new());
        let now = Timestamp::from_micros;
        acquire(&limit, &mut heap, 1, now(60_000_000));
        acquire(&limit, &mut heap, 2, now(60_000_001));
        // The clock went back to 0: the second permit ends a microsecond more than two timeouts from then.
        assert!(!renew(&limit, &mut heap, 3, now(0)));
        assert!(is_held(&heap, 1, now(119_999_999)));
        assert!(!is_held(&heap, 1, now(120_000_000)));
        assert!(is_held(&heap, 2, now(59_999_999)));
        assert!(!is_held(&heap, 2, now(60_000_000)));
    }

    #[test]
    fn a_renewal_after_the_clock_went_back_shortens_no_permit() {
        let (limit, mut heap) = (limit(), Heap::new());
        acquire(&limit, &mut heap, 1, at(0));
        acquire(&limit, &mut heap, 2, at(10));
        assert!(renew(&limit, &mut heap, 2, at(5)));
        assert!(is_held(&heap, 2, at(60_000_009)));
        assert!(!is_held(&heap, 2, at(60_000_010)));
    }
}
