//! Holds the algorithms to their promised bounds, with callers of many kinds and a searching
//! adversary.

use ratekeeper_core::Micros;
use ratekeeper_testkit::accuracy::{Adversary, Arrivals, Counters, Form};

const WINDOW: Micros = Micros::from_secs(60);

/// The most hits that the adversary gets into one window.
fn found(form: Form, quota: u64, tries: u32) -> u64 {
    let mut counters = Counters::new(form, quota, WINDOW).expect("a valid limit");
    Adversary::new(&mut counters, 1).search(tries).worst
}

#[test]
fn the_adversary_finds_what_is_known_to_break() {
    for (form, quota, at_least) in [
        (Form::FixedWindow, 10, 20),
        (Form::SubWindows(1), 100, 195),
        (Form::SubWindows(12), 10, 18),
        (Form::SubWindows(12), 1_000, 1_900),
        (Form::TokenBucket, 100, 195),
    ] {
        let worst = found(form, quota, 400);
        assert!(worst >= at_least, "{form:?}: {worst} of {quota}");
    }
}

#[test]
fn the_adversary_gets_no_more_than_promised() {
    for form in [Form::Default, Form::Strict] {
        for quota in [1, 5, 10, 17, 22, 23, 24, 100, 1_000] {
            let most = form.most_in_a_window(quota).expect("a promise");
            let worst = found(form, quota, 300);
            assert!(
                worst <= most,
                "{form:?}: {worst} of {quota}, at most {most}"
            );
        }
    }
}

/// The bound is not kept by denying hits that fit: some arrivals reach it.
#[test]
fn the_adversary_gets_all_that_is_promised() {
    for (quota, most) in [(5, 5), (23, 23), (24, 25), (100, 106)] {
        assert_eq!(Form::Default.most_in_a_window(quota), Some(most));
        assert_eq!(found(Form::Default, quota, 400), most, "{quota}");
    }
}

#[test]
fn no_arrivals_get_more_than_promised_and_none_below_the_limit_is_denied() {
    for form in Form::ALL {
        let mut played = 0;
        for quota in [1, 5, 22, 23, 24, 100] {
            let Some(mut counters) = Counters::new(form, quota, WINDOW) else {
                continue;
            };
            played += 1;
            let most = form.most_in_a_window(quota).unwrap_or(u64::MAX);
            for arrivals in Arrivals::ALL {
                let tally = arrivals.play(&mut counters, 1, 8);
                assert!(
                    tally.worst <= most,
                    "{form:?}, {arrivals:?}: {} of {quota}, at most {most}",
                    tally.worst
                );
                assert_eq!(tally.denied_below, 0, "{form:?}, {arrivals:?}: {quota}");
            }
        }
        assert!(played >= 4, "{form:?} bears {played} of six quotas");
    }
}
