//! Limits as values: what is refused, and what is promised.

use std::time::Duration;

use ratekeeper::core::LimitError;
use ratekeeper::{Algorithm, Error, InvalidLimit, Limit, ManualClock, RateLimiter};

const MINUTE: Duration = Duration::from_secs(60);

fn refused(limit: Limit) -> InvalidLimit {
    match RateLimiter::keyed(limit) {
        Err(Error::Limit { index: 0, reason }) => reason,
        other => panic!("expected a refusal, found {other:?}"),
    }
}

#[test]
fn impossible_limits_are_refused_when_the_limiter_is_made() {
    assert_eq!(refused(Limit::per_second(0)), InvalidLimit::Zero);
    let century = Duration::from_secs(100 * 366 * 86_400);
    assert_eq!(refused(Limit::new(1, century)), InvalidLimit::WindowTooLong);
    assert_eq!(
        refused(Limit::new(1, Duration::MAX)),
        InvalidLimit::WindowTooLong
    );
    for window in [Duration::ZERO, Duration::from_nanos(999)] {
        assert_eq!(
            refused(Limit::new(1, window)),
            InvalidLimit::Refused(LimitError::EmptyWindow)
        );
    }
    assert_eq!(
        refused(Limit::per_minute(5).burst(0)),
        InvalidLimit::Refused(LimitError::ZeroBurst)
    );
    assert_eq!(
        refused(Limit::per_minute(u64::MAX)),
        InvalidLimit::Refused(LimitError::QuotaTooLarge)
    );
    let permits = Limit::per_minute(5).algorithm(Algorithm::Concurrency);
    assert_eq!(refused(permits), InvalidLimit::Permits);
    for name in ["", "a\r\nb", "\u{e4}", &"n".repeat(65)] {
        let named = Limit::per_minute(5).named(name.to_owned());
        assert_eq!(refused(named), InvalidLimit::Name, "{name:?}");
    }
}

#[test]
fn a_limiter_has_limits_that_differ() {
    assert!(matches!(RateLimiter::keyed([]), Err(Error::NoLimits)));
    let twice = RateLimiter::keyed([Limit::per_minute(5), Limit::per_minute(6)]);
    assert!(matches!(twice, Err(Error::Repeated { index: 1, other: 0 })));
    assert!(RateLimiter::keyed([Limit::per_minute(5), Limit::per_minute(5).burst(9)]).is_ok());
}

#[test]
fn per_second_means_hits_in_a_second() {
    let clock = ManualClock::new();
    let limiter = RateLimiter::builder(Limit::per_second(5)).clock(&clock);
    let limiter = limiter.build().expect("a valid limit");
    let passed = (0..20).filter(|_| limiter.check("a").allowed).count();
    assert_eq!(passed, 5);
    clock.advance(Duration::from_secs(1));
    assert_eq!((0..20).filter(|_| limiter.check("a").allowed).count(), 5);
}

#[test]
fn a_denial_is_over_exactly_when_it_says() {
    for limit in [
        Limit::per_minute(7),
        Limit::per_minute(7).burst(11),
        Limit::per_minute(7).algorithm(Algorithm::FixedWindow),
        Limit::per_minute(7).algorithm(Algorithm::Gcra),
        Limit::per_minute(7).algorithm(Algorithm::SlidingLog),
    ] {
        let clock = ManualClock::new();
        let limiter = RateLimiter::builder(limit.clone()).clock(&clock).build();
        let limiter = limiter.expect("a valid limit");
        for _ in 0..20 {
            while limiter.check("a").allowed {}
            let wait = limiter.peek("a").retry_after.expect("it comes back");
            clock.advance(wait - Duration::from_micros(1));
            assert!(!limiter.check("a").allowed, "{limit}");
            clock.advance(Duration::from_micros(1));
            assert!(limiter.check("a").allowed, "{limit}");
        }
    }
}

#[test]
fn costs_peeks_and_refunds_count_alike_for_several_limits() {
    let clock = ManualClock::new();
    let limits = [Limit::per_second(3), Limit::per_hour(10)];
    let limiter = RateLimiter::builder(limits).clock(&clock).build();
    let limiter = limiter.expect("valid limits");
    assert!(limiter.check_n("a", 3).allowed);
    let denied = limiter.check_n("a", 2);
    assert_eq!((denied.allowed, denied.index), (false, 0));
    clock.advance(Duration::from_secs(1));
    // The denied request took nothing of the other limit either.
    assert!(limiter.check_n("a", 3).allowed);
    clock.advance(Duration::from_secs(1));
    assert!(limiter.check_n("a", 3).allowed);
    clock.advance(Duration::from_secs(1));
    let bound = limiter.peek("a");
    assert_eq!((bound.allowed, bound.index, bound.remaining), (true, 1, 1));
    assert!(!limiter.check_n("a", 2).allowed);
    assert_eq!(limiter.refund("a", 2).remaining, 3);
    assert!(limiter.check_n("a", 3).allowed);
    assert!(limiter.check_n("b", 3).allowed, "keys are apart");
    let never = limiter.check_n("a", 4);
    assert!(never.is_never() && never.retry_after.is_none());
    for hits in [u64::MAX, 1 << 53] {
        assert!(limiter.check_n("a", hits).is_never());
        limiter.refund("b", hits);
    }
    assert_eq!(limiter.peek("b").remaining, 3, "no more than full");
}

#[test]
fn keys_may_be_long_and_are_told_apart() {
    let limiter = RateLimiter::keyed(Limit::per_minute(1)).expect("a valid limit");
    let megabyte = "k".repeat(1 << 20);
    assert!(limiter.check(&megabyte).allowed);
    assert!(!limiter.check(&megabyte).allowed);
    assert!(limiter.check(&megabyte[1..]).allowed);
    assert!(limiter.check(("a", "bc")).allowed);
    assert!(limiter.check(("ab", "c")).allowed);
    let address = |text: &str| text.parse::<std::net::IpAddr>().expect("an address");
    assert!(limiter.check(address("2001:db8::1")).allowed);
    assert!(
        !limiter.check(address("2001:db8::2:3")).allowed,
        "the same /64"
    );
    assert!(limiter.check(address("2001:db8:0:1::1")).allowed);
    assert!(limiter.check(address("203.0.113.7")).allowed);
    assert!(!limiter.check(address("::ffff:203.0.113.7")).allowed);
}

#[test]
fn a_clock_that_goes_back_lets_nothing_pass_twice() {
    let clock = ManualClock::new();
    let limiter = RateLimiter::builder(Limit::per_minute(2)).clock(&clock);
    let limiter = limiter.build().expect("a valid limit");
    assert!(limiter.check_n("a", 2).allowed);
    let start = clock.now();
    for back in [Duration::ZERO, start - MINUTE, start - MINUTE * 60] {
        clock.set(back);
        assert!(!limiter.check("a").allowed, "at {back:?}");
    }
    clock.set(start + MINUTE);
    assert!(limiter.check("a").allowed);
}

#[test]
fn memory_is_bounded_and_a_full_one_says_so() {
    let limiter = RateLimiter::builder(Limit::per_day(1)).memory_limit(1 << 20);
    let limiter = limiter.build().expect("a valid limit");
    let degraded = (0..100_000_u32)
        .map(|key| limiter.check(key))
        .filter(|answer| answer.degraded)
        .inspect(|answer| assert!(answer.allowed))
        .count();
    assert!(degraded > 50_000, "{degraded} were not counted");
}

#[cfg(feature = "serde")]
#[test]
fn limits_are_read_from_configuration_and_checked() {
    let read = |text: &str| serde_json::from_str::<Limit>(text);
    let limit = read(r#"{"limit": 5, "window": "1m30s", "burst": 10, "name": "calls"}"#);
    let limit = limit.expect("a valid limit");
    let expected = Limit::new(5, Duration::from_secs(90))
        .burst(10)
        .named("calls");
    assert_eq!(limit, expected);
    let written = serde_json::to_string(&limit).expect("it is written");
    assert_eq!(read(&written).expect("it is read again"), limit);
    for wrong in [
        r#"{"limit": 0, "window": "1m"}"#,
        r#"{"limit": 1, "window": "0s"}"#,
        r#"{"limit": 1, "window": "36525d"}"#,
        r#"{"limit": 1, "window": "soon"}"#,
        r#"{"limit": 1, "window": "1m", "algorithm": "none"}"#,
        r#"{"limit": 1, "window": "1m", "brust": 2}"#,
    ] {
        assert!(read(wrong).is_err(), "{wrong}");
    }
}
