//! The conformance suite notices stores that have one fault.

#[path = "faulty/store.rs"]
mod store;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use ratekeeper_testkit::conformance::{late, limits, lives, permits, post_paid, posts, returns};
use store::{Fault, Faulty};

/// Checks that the case passes without a fault, and with none of `faults`.
fn notices(case: impl Fn(Fault), faults: &[Fault]) {
    case(Fault::None);
    for fault in faults {
        let passes = catch_unwind(AssertUnwindSafe(|| case(*fault))).is_ok();
        assert!(!passes, "it passes with {fault:?}");
    }
}

/// A maker of stores with that fault.
fn of(fault: Fault) -> impl Fn() -> Faulty {
    move || Faulty::new(fault)
}

#[test]
fn counters_that_are_dropped_too_early() {
    notices(
        |fault| limits::nothing_is_forgotten_early(of(fault)),
        &[Fault::ForgetsAtHalf, Fault::ForgetsADayLater],
    );
}

#[test]
fn a_raised_limit_that_starts_anew() {
    notices(
        |fault| limits::a_raised_limit_keeps_what_was_used(of(fault)),
        &[Fault::CountsByQuota],
    );
}

#[test]
fn what_a_limit_says_besides_its_quota() {
    notices(
        |fault| limits::a_strict_limit_never_exceeds_its_quota(of(fault)),
        &[Fault::IgnoresStrict],
    );
    notices(
        |fault| limits::a_queue_is_no_longer_than_callers_wait(of(fault)),
        &[Fault::IgnoresDelayMax],
    );
    notices(
        |fault| post_paid::a_debt_is_no_larger_than_allowed(of(fault)),
        &[Fault::IgnoresMaxDebt],
    );
}

#[test]
fn permits_that_end_with_others() {
    notices(
        |fault| permits::a_permit_outlives_those_with_shorter_timeouts(of(fault)),
        &[Fault::EndsWithTheLastTimeout],
    );
}

#[test]
fn posts_that_are_lost_repeated_or_too_many() {
    notices(
        |fault| posts::a_post_counts_once(of(fault)),
        &[Fault::LosesPosts, Fault::RepeatsPosts],
    );
    notices(
        |fault| posts::a_post_takes_no_more_than_is_left(of(fault)),
        &[Fault::PostsAllOrNothing],
    );
    notices(
        |fault| posts::a_posted_charge_counts_in_full(of(fault)),
        &[Fault::CutsPosts],
    );
    notices(
        |fault| posts::a_post_of_what_no_longer_counts_takes_nothing(of(fault)),
        &[Fault::IgnoresAge],
    );
}

/// Nothing is owed to a store that always answers.
#[test]
fn a_store_that_takes_no_posts_has_to_change_nothing() {
    posts::a_post_counts_once(of(Fault::TakesNoPosts));
    posts::a_post_takes_no_more_than_is_left(of(Fault::TakesNoPosts));
    posts::a_posted_charge_counts_in_full(of(Fault::TakesNoPosts));
    posts::a_post_of_what_no_longer_counts_takes_nothing(of(Fault::TakesNoPosts));
}

#[test]
fn hits_that_are_given_back_to_the_wrong_or_not_at_all() {
    notices(
        |fault| returns::giving_back_frees_no_more_than_was_taken(of(fault)),
        &[
            Fault::ReturnsTwice,
            Fault::ReturnsTheUnanswered,
            Fault::ReturnsCharges,
        ],
    );
    returns::giving_back_frees_no_more_than_was_taken(of(Fault::ReturnsNothing));
    notices(
        |fault| returns::stranded_hits_change_nothing(of(fault)),
        &[Fault::FreesStranded, Fault::ChargesStranded],
    );
}

#[test]
fn a_store_that_gives_nothing_back() {
    notices(
        |fault| returns::what_was_taken_is_given_back_within(Duration::ZERO, of(fault)),
        &[Fault::ReturnsNothing],
    );
}

#[test]
fn counters_without_a_life_or_with_a_short_one() {
    let make = |fault| {
        move || {
            let store = Faulty::new(fault);
            let lives = store.clone();
            (store, move |step: &_| lives.life(step))
        }
    };
    notices(
        |fault| lives::a_counter_lives_for_as_long_as_it_counts(make(fault)),
        &[Fault::NoLife, Fault::HalfALife],
    );
    notices(
        |fault| lives::a_counter_lives_until_its_last_permit_ends(make(fault)),
        &[Fault::EndsWithTheLastTimeout],
    );
}

#[test]
fn late_answers_that_are_invented() {
    let make = |fault| {
        move || {
            let store = Faulty::new(fault);
            let held = store.clone();
            (store, move |holds| held.hold(holds))
        }
    };
    notices(
        |fault| late::a_late_answer_is_that_of_the_request(make(fault)),
        &[
            Fault::LateIsNotCarriedOut,
            Fault::LateIsCarriedOutTwice,
            Fault::LateTimesOutAgain,
            Fault::LateIsNotTold,
            Fault::LateIsLost,
        ],
    );
}
