//! The promises of every algorithm, on random histories that favour edges. One file per promise.

#![allow(
    clippy::cast_lossless,
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    reason = "figures of measurements, and of tests, are rounded on purpose"
)]

/// Generates a property test for each named algorithm, or for all but concurrency; `check` gets its histories.
macro_rules! histories_hold {
    ($check:ident) => {
        histories_hold! { $check:
            fixed_window FixedWindow,
            sliding_window SlidingWindow,
            sliding_log SlidingLog,
            token_bucket TokenBucket,
            gcra Gcra,
            leaky_bucket LeakyBucket,
        }
    };
    ($check:ident: $($name:ident $algorithm:ident),* $(,)?) => {
        proptest::proptest! {
            $(
                #[test]
                fn $name(history in ratekeeper_testkit::model::history::histories(
                    ratekeeper_core::Algorithm::$algorithm
                )) {
                    $check(&history);
                }
            )*
        }
    };
}

mod batching;
mod bugs_of_others;
mod calendar;
mod changed_limits;
mod combining;
mod definition;
mod equal_count;
mod error_against_the_log;
mod expiry;
mod extremes;
mod permits;
mod post_paid;
mod refunds;
mod repeated_counters;
mod resets;
mod spilling;
mod time_going_back;
mod two_limits;
mod waiting;

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
