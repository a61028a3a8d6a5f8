//! What every algorithm promises, on random histories that favour edges. One file per promise.

mod definition;

use ratekeeper_core::{Limit, Moment, State, Timestamp};

/// Charges a state that may have to move to the heap, as a store does.
fn charge(limit: &Limit, state: &mut State, hits: i64, now: Timestamp) {
    let at = Moment::at(now);
    if limit.charge(state.as_mut(), hits, &at).is_ok() {
        return;
    }
    if let State::Words(words) = state {
        *state = State::Heap(limit.spill(words));
    }
    limit
        .charge(state.as_mut(), hits, &at)
        .expect("a heap never spills");
}
