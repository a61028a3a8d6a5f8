//! Limits that are refused, with the reason.

use super::{Algorithm, Limit, LimitError, LimitSpec, MAX_LOG, MAX_PERMITS};
use crate::{MAX_COUNT, Micros, Moment, State, Timestamp};

fn spec(algorithm: Algorithm, quota: u64) -> LimitSpec {
    LimitSpec::new(algorithm, quota, Micros::from_secs(60))
}

fn refused(spec: LimitSpec) -> LimitError {
    Limit::try_new(spec).expect_err("not a valid limit")
}

#[test]
fn every_algorithm_takes_0_and_its_largest_quota() {
    for algorithm in Algorithm::ALL {
        let most = match algorithm {
            Algorithm::SlidingLog => MAX_LOG,
            Algorithm::Concurrency => MAX_PERMITS,
            // Sixty seconds in as many parts as fit 2^53.
            algorithm if algorithm.has_burst() => u64::from(u32::MAX),
            _ => MAX_COUNT,
        };
        for quota in [0, 1, most] {
            let limit = Limit::try_new(spec(algorithm, quota)).expect("a valid limit");
            assert_eq!(limit.capacity(), quota);
        }
    }
}

#[test]
fn only_a_leaky_bucket_bounds_a_delay() {
    let most = Micros::from_millis(1);
    for algorithm in Algorithm::ALL {
        let limit = Limit::try_new(spec(algorithm, 10)).expect("a valid limit");
        let bound = match algorithm {
            Algorithm::LeakyBucket => most,
            _ => Micros::MAX,
        };
        assert_eq!(limit.with_delay_max(most).delay_max(), bound);
    }
}

/// 40 hits are charged to a limit of 10, and 35 given back.
#[test]
fn a_counter_keeps_what_is_charged_beyond_its_limit_or_forgets_it() {
    let at = Moment::at(Timestamp::from_secs(1_200_000_000));
    let rates = Algorithm::ALL.into_iter().filter(|it| !it.holds_permits());
    let plain = rates.map(|algorithm| spec(algorithm, 10));
    let cut = LimitSpec {
        sub_windows: Some(4),
        ..spec(Algorithm::SlidingWindow, 10)
    };
    let plain = plain.chain([cut]).map(Limit::try_new);
    let plain = plain.map(|limit| limit.expect("a valid limit"));
    let both = plain.flat_map(|limit| [limit, limit.paid_afterwards()]);
    for limit in both {
        let mut state = State::new(limit.shape());
        for hits in [40, -35] {
            limit.charge_owned(&mut state, hits, &at);
        }
        let outcome = limit.test(state.as_ref(), crate::Ask::hits(0), &at);
        let left = if limit.forgets_excess() { 10 } else { 5 };
        assert_eq!(outcome.remaining, left, "{limit:?}");
    }
}

#[test]
fn the_reported_limit_is_the_larger_of_quota_and_burst() {
    for (burst, ceiling) in [(3, 10), (10, 10), (30, 30)] {
        let limit = Limit::try_new(LimitSpec {
            burst: Some(burst),
            ..spec(Algorithm::Gcra, 10)
        })
        .expect("a valid limit");
        assert_eq!((limit.capacity(), limit.ceiling()), (burst, ceiling));
    }
}

#[test]
fn a_hit_counts_for_a_window_or_until_a_bucket_and_its_debt_are_refilled() {
    let minutes = |spec: LimitSpec| {
        let limit = Limit::try_new(spec).expect("a valid limit");
        limit.counts_for().get() / 60_000_000
    };
    for algorithm in Algorithm::ALL {
        assert_eq!(minutes(spec(algorithm, 10)), 1, "{algorithm:?}");
        if algorithm.has_burst() {
            for (burst, expected) in [(3, 1), (30, 3)] {
                let burst = Some(burst);
                let spec = LimitSpec {
                    burst,
                    ..spec(algorithm, 10)
                };
                assert_eq!(minutes(spec), expected, "{spec:?}");
            }
        }
    }
    for (algorithm, max_debt, expected) in [
        (Algorithm::FixedWindow, None, 1),
        (Algorithm::TokenBucket, None, 11),
        (Algorithm::TokenBucket, Some(20), 3),
        (Algorithm::Gcra, Some(0), 1),
    ] {
        let spec = LimitSpec {
            post_paid: true,
            max_debt,
            ..spec(algorithm, 10)
        };
        assert_eq!(minutes(spec), expected, "{spec:?}");
    }
    let calendar = LimitSpec {
        calendar: true,
        ..spec(Algorithm::FixedWindow, 10)
    };
    assert_eq!(minutes(calendar), 1 + 2 * 60, "clocks may go back");
}

#[test]
fn numbers_out_of_range_are_named() {
    let gcra = spec(Algorithm::Gcra, 10);
    let over = spec(Algorithm::FixedWindow, MAX_COUNT + 1);
    assert_eq!(refused(over), LimitError::QuotaTooLarge);
    let empty = LimitSpec {
        window: Micros::ZERO,
        ..gcra
    };
    assert_eq!(refused(empty), LimitError::EmptyWindow);
    let none = LimitSpec {
        burst: Some(0),
        ..gcra
    };
    assert_eq!(refused(none), LimitError::ZeroBurst);
    let large = LimitSpec {
        burst: Some(MAX_COUNT + 1),
        ..gcra
    };
    assert_eq!(refused(large), LimitError::BurstTooLarge);
    let long = LimitSpec {
        burst: Some(MAX_COUNT),
        ..gcra
    };
    assert_eq!(refused(long), LimitError::RateOutOfRange);
    let log = spec(Algorithm::SlidingLog, MAX_LOG + 1);
    assert_eq!(refused(log), LimitError::LogTooLong);
    let permits = spec(Algorithm::Concurrency, MAX_PERMITS + 1);
    assert_eq!(refused(permits), LimitError::TooManyPermits);
    for sub_windows in [0, 65] {
        let sliding = spec(Algorithm::SlidingWindow, 10);
        let cut = LimitSpec {
            sub_windows: Some(sub_windows),
            ..sliding
        };
        assert_eq!(refused(cut), LimitError::SubWindowsOutOfRange);
    }
}

#[test]
fn settings_of_another_algorithm_are_refused() {
    for algorithm in Algorithm::ALL {
        let spec = spec(algorithm, 10);
        if !algorithm.has_burst() {
            let burst = LimitSpec {
                burst: Some(1),
                ..spec
            };
            assert_eq!(refused(burst), LimitError::NoBurst(algorithm));
        }
        if algorithm != Algorithm::SlidingWindow {
            let cut = LimitSpec {
                sub_windows: Some(1),
                ..spec
            };
            assert_eq!(refused(cut), LimitError::NoSubWindows(algorithm));
        }
        if algorithm != Algorithm::FixedWindow {
            let calendar = LimitSpec {
                calendar: true,
                ..spec
            };
            assert_eq!(refused(calendar), LimitError::NoCalendar(algorithm));
        }
    }
}

#[test]
fn a_refusal_names_the_algorithms_that_have_it() {
    let told = [
        LimitError::NoBurst(Algorithm::FixedWindow),
        LimitError::NoPostPaid(Algorithm::LeakyBucket),
        LimitError::NoDebt(Algorithm::SlidingLog),
    ];
    assert_eq!(
        told.map(|why| why.to_string()),
        [
            "fixed_window has no burst; token_bucket, gcra and leaky_bucket have",
            "leaky_bucket cannot be post_paid; fixed_window, sliding_window, sliding_log, token_bucket and gcra can",
            "sliding_log has no max_debt, as no debt outlives its window; token_bucket and gcra have",
        ]
    );
}

#[test]
fn names_are_those_of_rules_files() {
    for algorithm in Algorithm::ALL {
        assert_eq!(Algorithm::from_name(algorithm.name()), Some(algorithm));
    }
    assert_eq!(Algorithm::from_name("Fixed_Window"), None);
}

#[test]
fn the_largest_numbers_are_named_in_the_messages() {
    let messages = [
        (LimitError::QuotaTooLarge, MAX_COUNT),
        (LimitError::LogTooLong, MAX_LOG),
        (LimitError::TooManyPermits, MAX_PERMITS),
    ];
    for (error, most) in messages {
        assert!(error.to_string().contains(&most.to_string()), "{error}");
    }
}
