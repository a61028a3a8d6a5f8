//! The conformance suite that every store must pass.
//!
//! A store's test file is three lines:
//!
//! ```
//! use ratekeeper_store::{MemoryConfig, MemoryStore};
//!
//! ratekeeper_testkit::conformance!(|| MemoryStore::new(MemoryConfig::default()).unwrap());
//! ```
//!
//! The closure makes an empty store, or one whose keys no other test uses. Tickets are awaited by
//! blocking the thread, so a store that needs a runtime brings one with its own threads.
//!
//! The cases of each optional part pass for a store that leaves it out. Three things cannot be seen through the trait,
//! and have macros of their own: [`conformance_of_lives`](crate::conformance_of_lives) for a store that lets counters
//! expire by itself, [`conformance_of_returns`](crate::conformance_of_returns) for one that gives hits back, and
//! [`conformance_of_late`](crate::conformance_of_late) for one whose answers may come late.

pub mod histories;
pub mod late;
pub mod limits;
pub mod lives;
pub mod once;
pub mod permits;
pub mod post_paid;
pub mod posts;
pub mod requests;
pub mod returns;
pub mod rollout;
pub mod threads;

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};

use ratekeeper_core::{Algorithm, Limit, LimitSpec, MAX_LOG, Micros, Mode, Outcome, Timestamp};
use ratekeeper_store::{Answer, CounterKey, Request, Step, StepOutcome, Store, Verdicts};

/// Random histories that a store is asked in a test, where it says nothing else.
pub const HISTORIES: u32 = 150;

/// Generates the conformance tests for the store that the closure makes. With `histories: 30;` before it random histories
/// are so many instead of [`HISTORIES`](crate::conformance::HISTORIES): for a store that differs from a tested one only in
/// its routing.
#[macro_export]
macro_rules! conformance {
    (histories: $histories:expr; $make:expr) => {
        $crate::conformance!(
            $make;
            limits: admits_exactly_its_limit,
            limits: comes_back_exactly_when_told,
            limits: oversized_hits_are_never_admitted,
            limits: a_limit_of_nothing_admits_nothing,
            limits: a_calendar_window_ends_at_its_edge,
            limits: time_going_back_is_harmless,
            limits: a_lowered_limit_takes_effect_at_once,
            limits: a_raised_limit_keeps_what_was_used,
            limits: nothing_is_forgotten_early,
            limits: a_strict_limit_never_exceeds_its_quota,
            limits: a_queue_is_no_longer_than_callers_wait,
            requests: a_denied_request_consumes_nothing,
            requests: a_repeated_counter_sees_the_earlier_take,
            requests: shadow_steps_count_and_never_deny,
            requests: quota_steps_deny_together,
            requests: always_charges_what_is_denied,
            requests: refunds_give_back_in_any_case,
            requests: peeks_change_nothing,
            requests: no_steps_are_allowed,
            requests: many_steps_are_decided_together,
            threads: one_counter_admits_its_limit_to_many_threads,
            threads: several_counters_are_taken_together_or_not_at_all,
            post_paid: a_look_is_denied_once_nothing_is_left,
            post_paid: a_charge_counts_even_if_the_request_is_denied,
            post_paid: a_look_at_what_is_overdrawn_is_denied,
            post_paid: a_look_and_a_take_are_one_request,
            post_paid: a_thousand_charges_count_each,
            post_paid: a_reservation_leaves_what_was_used,
            post_paid: a_debt_is_no_larger_than_allowed,
            posts: a_post_counts_once,
            posts: a_post_takes_no_more_than_is_left,
            posts: a_posted_charge_counts_in_full,
            posts: a_post_of_what_no_longer_counts_takes_nothing,
            returns: giving_back_frees_no_more_than_was_taken,
            returns: stranded_hits_change_nothing,
            permits: a_permit_is_freed_by_its_id,
            permits: a_permit_asked_for_twice_is_held_once,
            permits: a_permit_ends_at_its_deadline_unless_renewed,
            permits: permits_and_rates_are_taken_together,
            permits: a_permit_of_several_counters_is_freed_in_each,
            permits: a_permit_outlives_those_with_shorter_timeouts,
            once: a_repeat_takes_nothing,
            once: a_denied_or_forgotten_request_is_decided_again,
            once: a_repeat_is_known_for_a_span,
            once: an_id_stands_for_one_request,
            once: an_undone_request_is_carried_out_again,
            once: other_steps_are_no_repeat,
            once: giving_back_is_remembered_in_any_case,
            once: copies_that_arrive_together_are_one,
            once: hits_come_back_while_they_count,
        );

        #[test]
        fn two_limits_admit_no_more_than_the_larger() {
            $crate::conformance::rollout::two_limits_admit_no_more_than_the_larger($make, $histories);
        }

        #[test]
        fn equals_the_pure_steps() {
            $crate::conformance::histories::equals_the_pure_steps($make, $histories);
        }
    };
    ($make:expr) => {
        $crate::conformance!(histories: $crate::conformance::HISTORIES; $make);
    };
    ($make:expr; $($group:ident: $case:ident,)*) => {
        $(
            #[test]
            fn $case() {
                $crate::conformance::$group::$case($make);
            }
        )*
    };
}

/// Generates the conformance tests of a store that lets counters expire by itself. The closure makes the store, and a
/// function that tells the [life](crate::conformance::lives::Life) of a step's counter. The store's clock may be its own.
#[macro_export]
macro_rules! conformance_of_lives {
    ($make:expr) => {
        $crate::conformance!(
            $make;
            lives: a_counter_lives_for_as_long_as_it_counts,
            lives: a_counter_lives_until_its_last_permit_ends,
        );
    };
}

/// Generates the conformance tests of a store that [gives back](ratekeeper_store::Store::give_back) what an allowed
/// request has taken.
#[macro_export]
macro_rules! conformance_of_returns {
    ($make:expr) => {
        $crate::conformance!(
            $make;
            returns: what_was_taken_is_given_back,
        );
    };
}

/// Generates the conformance tests of a store that tells answers that come [late](ratekeeper_store::Store::late). The
/// closure makes the store, with a deadline that the tests can wait for, and a function that holds its answers back
/// while it was last called with `true`. The store's clock may be its own.
#[macro_export]
macro_rules! conformance_of_late {
    ($make:expr) => {
        $crate::conformance!(
            $make;
            late: a_late_answer_is_that_of_the_request,
        );
    };
}

/// Decides a request, and waits for the ticket if there is one.
///
/// # Panics
/// If the store fails.
pub fn decide<S: Store>(store: &S, request: &Request<'_>) -> Verdicts {
    match store.decide(request) {
        Answer::Decided(verdicts) => verdicts,
        Answer::Pending(ticket) => wait(ticket).expect("the store answers"),
    }
}

/// Decides `steps` at `now`, in the default mode.
fn at<S: Store>(store: &S, now: Timestamp, steps: &[Step]) -> Verdicts {
    let mode = Mode::default();
    decide(store, &Request::new(steps, mode, now))
}

/// Decides a request of one step.
fn one<S: Store>(store: &S, now: Timestamp, step: Step) -> (bool, Outcome) {
    let verdicts = at(store, now, &[step]);
    assert_eq!(verdicts.outcomes.len(), 1);
    (verdicts.allowed, counted(&verdicts, 0))
}

/// The counter's answer to a step.
fn counted(verdicts: &Verdicts, index: usize) -> Outcome {
    match verdicts.outcomes[index] {
        StepOutcome::Counted(outcome) => outcome,
        StepOutcome::Full(_) => panic!("the store has room for a few counters"),
        StepOutcome::OnThisNode(_) => panic!("a store has no counters beside its own"),
        StepOutcome::Leased(_) => panic!("no step is leased"),
        StepOutcome::Unanswered(error) => panic!("every place is there: {error}"),
    }
}

/// The remaining hits of the counter of `step`.
fn remaining<S: Store>(store: &S, now: Timestamp, step: Step) -> u64 {
    one(store, now, Step { hits: 0, ..step }).1.remaining
}

/// A step of one hit on the counter with that number.
fn step(limit: &Limit, number: u64) -> Step {
    Step::new(key(number), *limit)
}

/// The same of so many hits.
fn taking(hits: i64, limit: &Limit, number: u64) -> Step {
    let step = step(limit, number);
    Step { hits, ..step }
}

/// The key of a counter. There are three subjects, so some counters share a shard and some do not.
fn key(number: u64) -> CounterKey {
    let spread = |n: u64| (n + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29);
    CounterKey {
        subject: spread(number % 3),
        identity: spread(number),
    }
}

/// A Tuesday, in the middle of every window.
const NOW: Timestamp = Timestamp::from_micros(1_789_000_123_456_789);

/// A limit of `quota` an hour.
fn hourly(algorithm: Algorithm, quota: u64) -> Limit {
    let spec = LimitSpec::new(algorithm, quota, Micros::from_secs(3_600));
    Limit::try_new(spec).expect("a valid limit")
}

/// A limit of every algorithm, and a sliding window with so many sub-windows that its state is out
/// of line.
fn every_limit(quota: u64) -> impl Iterator<Item = Limit> {
    let parts = [60, 1].map(move |parts| {
        let hour = Micros::from_secs(3_600);
        let mut spec = LimitSpec::new(Algorithm::SlidingWindow, quota, hour);
        spec.sub_windows = Some(parts);
        Limit::try_new(spec).expect("a valid limit")
    });
    let of_each = Algorithm::ALL.into_iter().map(move |algorithm| {
        let most = match algorithm {
            Algorithm::SlidingLog => MAX_LOG,
            _ => u64::MAX,
        };
        hourly(algorithm, quota.min(most))
    });
    of_each.chain(parts)
}

/// A limit of every algorithm that can be paid afterwards.
fn every_budget(quota: u64) -> impl Iterator<Item = Limit> {
    Algorithm::ALL.into_iter().filter_map(move |algorithm| {
        let spec = LimitSpec::new(algorithm, quota, Micros::from_secs(3_600));
        let budget = LimitSpec {
            post_paid: true,
            ..spec
        };
        Limit::try_new(budget).ok()
    })
}

/// The same without permits, which are not hits.
fn every_rate(quota: u64) -> impl Iterator<Item = Limit> {
    every_limit(quota).filter(|limit| limit.algorithm() != Algorithm::Concurrency)
}

/// The name of the limit for assertion messages.
fn name(limit: &Limit) -> String {
    match limit.sub_windows() {
        0 => limit.algorithm().name().to_owned(),
        count => format!("{} of {count} sub-windows", limit.algorithm().name()),
    }
}

/// Blocks the thread until `future` completes.
fn wait<F: Future>(future: F) -> F::Output {
    struct Unpark(Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut context = Context::from_waker(&waker);
    let mut future = pin!(future);
    loop {
        match future.as_mut().poll(&mut context) {
            Poll::Ready(output) => return output,
            Poll::Pending => thread::park(),
        }
    }
}
