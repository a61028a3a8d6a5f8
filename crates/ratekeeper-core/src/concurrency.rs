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
//! State (heap): triples of the permit's id (two words, high first) and its deadline: 24 bytes a
//! permit held. A charge without an id holds a nameless permit, which only its deadline ends.
//! A refund changes nothing, since it does not say whose permit it means: edges refuse it.

use crate::step::Finding;
use crate::{Ask, Heap, Limit, Micros, Outcome, Timestamp};

/// What a refused request is told to wait: how long the holders will take is unknown.
pub const RETRY_HINT: Micros = Micros::from_secs(1);

/// Words of one permit.
const PERMIT: usize = 3;

fn deadlines(heap: &[u64]) -> impl Iterator<Item = u64> + '_ {
    heap.chunks_exact(PERMIT).map(|permit| permit[2])
}

fn id_words(id: u128) -> [u64; 2] {
    [(id >> 64) as u64, (id & u128::from(u64::MAX)) as u64]
}

pub(crate) fn test(limit: &Limit, heap: &[u64], ask: Ask, now: Timestamp) -> Outcome {
    let held = deadlines(heap)
        .filter(|deadline| *deadline > now.as_micros())
        .count() as u64;
    let room = limit.quota().saturating_sub(held);
    let wait = if ask.probe() <= room {
        Micros::ZERO
    } else {
        RETRY_HINT
    };
    let finding = Finding {
        capacity: limit.quota(),
        room,
        reset_after: Micros::ZERO,
        wait,
    };
    let hits = ask.hits.max(0);
    let outcome = finding.outcome(Ask { hits, ..ask });
    // A refund only looks, but is not told when to come.
    let retry_after = if ask.hits < 0 {
        Micros::ZERO
    } else {
        outcome.retry_after
    };
    Outcome {
        retry_after,
        ..outcome
    }
}

pub(crate) fn charge(limit: &Limit, heap: &mut Heap, hits: i64, now: Timestamp) {
    reap(heap, now);
    let held = (heap.len() / PERMIT) as u64;
    let room = limit.quota().saturating_sub(held);
    for _ in 0..hits.max(0).unsigned_abs().min(room) {
        hold(limit, heap, 0, now);
    }
}

fn hold(limit: &Limit, heap: &mut Heap, id: u128, now: Timestamp) {
    let [high, low] = id_words(id);
    heap.extend([high, low, now.after(limit.window()).as_micros()]);
}

fn reap(heap: &mut Heap, now: Timestamp) {
    let live = |deadline: u64| deadline > now.as_micros();
    if deadlines(heap).all(live) {
        return;
    }
    let mut kept = 0;
    for permit in (0..heap.len()).step_by(PERMIT) {
        if heap.get(permit + 2).copied().is_some_and(live) {
            heap.copy_within(permit..permit + PERMIT, kept);
            kept += PERMIT;
        }
    }
    heap.truncate(kept);
}

/// Takes one permit under `id`, which the caller makes unique (128 random bits), until
/// `limit.window()` from `now`. The counter changes only if it fits.
pub fn acquire(limit: &Limit, heap: &mut Heap, id: u128, now: Timestamp) -> Outcome {
    let outcome = test(limit, heap, Ask::hits(1), now);
    if outcome.fits() {
        reap(heap, now);
        hold(limit, heap, id, now);
    }
    outcome
}

/// Gives the permit `id` back. False if it is not held: released before, or reaped.
pub fn release(heap: &mut Heap, id: u128, now: Timestamp) -> bool {
    reap(heap, now);
    let found = heap
        .chunks_exact(PERMIT)
        .position(|permit| permit[..2] == id_words(id));
    if let Some(index) = found {
        heap.drain(index * PERMIT..(index + 1) * PERMIT);
    }
    found.is_some()
}

/// Moves the deadline of the permit `id` to `limit.window()` from `now`. False if it is not
/// held any more: its place may have been given away.
pub fn renew(limit: &Limit, heap: &mut Heap, id: u128, now: Timestamp) -> bool {
    reap(heap, now);
    let deadline = now.after(limit.window()).as_micros();
    let held = heap
        .chunks_exact_mut(PERMIT)
        .find(|permit| permit[..2] == id_words(id));
    held.map(|permit| permit[2] = deadline.max(permit[2]))
        .is_some()
}

pub(crate) fn expires_at(heap: &[u64]) -> Timestamp {
    Timestamp::from_micros(deadlines(heap).max().unwrap_or(0))
}
