//! Limits: windows, algorithms, plans, concurrency.

use ratekeeper_core::{Algorithm, Micros};
use ratekeeper_rules::{CalendarUnit, Options, Source, Unit, load};

use crate::support::{errors, limits, loaded, refused, rules};

#[test]
fn windows_are_units_durations_or_calendars() {
    let second = Micros::from_secs(1);
    assert_eq!(
        limits("{ window: 10s, limit: 5 }"),
        [(Algorithm::SlidingWindow, 5, Micros::from_secs(10))]
    );
    assert_eq!(
        limits("{ window: 250ms, limit: 5 }"),
        [(Algorithm::SlidingWindow, 5, Micros::from_millis(250))]
    );
    assert_eq!(
        limits("{ unit: second, limit: 5 }"),
        [(Algorithm::SlidingWindow, 5, second)]
    );
    assert_eq!(
        limits("{ window: 1s, requests_per_unit: 5 }"),
        [(Algorithm::SlidingWindow, 5, second)]
    );
    let big = 9_007_199_254_740_991_u64;
    assert_eq!(limits(&format!("{{ unit: day, limit: {big} }}"))[0].1, big);

    let rule = &rules("    rate_limit: { window: 1h, limit: 5 }\n")[0];
    assert_eq!((rule.unit, &*rule.window_text), (Some(Unit::Hour), "1h"));
    let rule = &rules("    rate_limit: { window: 90s, limit: 5 }\n")[0];
    assert_eq!((rule.unit, &*rule.window_text), (None, "90s"));
    let rule = &rules("    rate_limit: { unit: month, calendar: Europe/Vienna, limit: 5 }\n")[0];
    let calendar = rule.calendar.as_ref().expect("it follows one");
    assert_eq!(
        (calendar.unit(), calendar.zone()),
        (CalendarUnit::Month, "Europe/Vienna")
    );
    assert_eq!(
        (rule.unit, &*rule.window_text),
        (None, "month@Europe/Vienna")
    );
    assert_eq!(
        rule.limited().map(|limit| limit.algorithm()),
        Some(Algorithm::FixedWindow)
    );
}

#[test]
fn every_algorithm_has_its_own_keys() {
    let of = |body: &str| {
        *rules(&format!("    rate_limit: {body}\n"))[0]
            .limited()
            .expect("a limit")
    };
    let bucket = of("{ window: 1m, limit: 60, algorithm: token_bucket, burst: 10 }");
    assert_eq!(
        (bucket.algorithm(), bucket.quota(), bucket.capacity()),
        (Algorithm::TokenBucket, 60, 10)
    );
    assert_eq!(
        of("{ window: 1m, limit: 60, algorithm: gcra }").capacity(),
        60
    );
    assert_eq!(
        of("{ window: 1m, limit: 60, sub_windows: 6 }").sub_windows(),
        6
    );
    let sliding = of("{ window: 1m, limit: 60 }");
    assert_eq!((sliding.sub_windows(), sliding.is_strict()), (0, false));
    assert_eq!(sliding.most_in_any_window(), Some(63));
    let strict = of("{ window: 1m, limit: 60, strict: true }");
    assert_eq!((strict.quota(), strict.capacity()), (60, 57));
    assert!(!of("{ window: 1m, limit: 60, strict: false }").is_strict());
    assert_eq!(
        of("{ window: 1m, limit: 60, algorithm: fixed_window }").algorithm(),
        Algorithm::FixedWindow
    );
    assert_eq!(
        of("{ window: 1m, limit: 60, algorithm: sliding_log }").algorithm(),
        Algorithm::SlidingLog
    );
    assert_eq!(
        of("{ window: 1m, limit: 60, algorithm: leaky_bucket }").algorithm(),
        Algorithm::LeakyBucket
    );
}

#[test]
fn limits_that_cannot_be_are_refused() {
    for (limit, message) in [
        (
            "{ window: 0s, limit: 5 }",
            "a window is at least 1 microsecond",
        ),
        ("{ window: 10s }", "there is no `limit`"),
        ("{ window: 10s, limit: }", "`limit` is empty"),
        (
            "{ window: 10s, limit: 1, requests_per_unit: 1 }",
            "`limit` and `requests_per_unit` say the same thing",
        ),
        (
            "{ window: 10s, unit: day, limit: 1 }",
            "`window` already says how long",
        ),
        (
            "{ window: 10s, calendar: UTC, limit: 1 }",
            "`window` already says how long",
        ),
        ("{ calendar: UTC, limit: 1 }", "a calendar has no window ''"),
        (
            "{ calendar: UTC, unit: hour, limit: 1 }",
            "a calendar has no window 'hour'",
        ),
        (
            "{ calendar: Moon/Base, unit: day, limit: 1 }",
            "there is no time zone 'Moon/Base'",
        ),
        (
            "{ unit: day, limit: 9007199254740992 }",
            "`limit` is a whole number from 0 to 9007199254740991, not 9007199254740992",
        ),
        (
            "{ unit: day, limit: 5, burst: 0, algorithm: gcra }",
            "a burst is at least 1; to block everything set the limit to 0",
        ),
        (
            "{ unit: day, limit: 5, sub_windows: 65 }",
            "sub_windows is 1 to 64",
        ),
        (
            "{ unit: day, limit: 5, sub_windows: 2, algorithm: gcra }",
            "gcra has no sub_windows; sliding_window has",
        ),
        (
            "{ unit: day, limit: 5, strict: true, algorithm: gcra }",
            "`strict` requires sliding_window, not gcra",
        ),
        (
            "{ unit: day, limit: 5, strict: true, sub_windows: 2 }",
            "a sliding_window cannot be strict with sub_windows, which let up to twice the limit pass",
        ),
        (
            "{ window: 5ms, limit: 5 }",
            "a sliding_window is at least 8 ms; for a shorter one use gcra, token_bucket or sub_windows",
        ),
        (
            "{ unit: day, limit: 5, algorithm: sliding }",
            "`algorithm` cannot be 'sliding'",
        ),
        (
            "{ unit: day, limit: 5, algorithm: concurrency }",
            "concurrency is not an algorithm of a rate",
        ),
        (
            "{ unlimited: true, window: 10s }",
            "`window` contradicts `unlimited`",
        ),
        ("[]", "there is no limit in this list"),
        ("[ 5 ]", "list of type other than map: a whole number"),
        (
            "[ { unit: day, limit: 5 }, { unlimited: true } ]",
            "unlimited stands alone, not in a list",
        ),
    ] {
        assert_eq!(refused(limit), message, "{limit}");
    }
}

#[test]
fn two_limits_of_a_list_differ_in_algorithm_or_window() {
    let twice = refused("[ { window: 60s, limit: 5 }, { unit: minute, limit: 9 } ]");
    assert_eq!(
        twice,
        "this list has a limit of the same algorithm and window (1m) on line 5"
    );
    let body = "    rate_limit: [ { window: 1m, limit: 5 }, { window: 1m, limit: 9, algorithm: gcra }, { window: 1s, limit: 2 } ]\n";
    let rules = rules(body);
    let ids: Vec<_> = rules.iter().map(|rule| &*rule.id).collect();
    assert_eq!(ids, ["d.k#1m:sliding_window", "d.k#1m:gcra", "d.k#1s"]);
}

#[test]
fn concurrency_is_a_rule_of_its_own() {
    let rules = rules(
        "    concurrency: { limit: 20, timeout: 30s, retry_after: 2s }\n    rate_limit: { unit: day, limit: 5 }\n",
    );
    let [rate, permits] = &rules[..] else {
        panic!("two rules")
    };
    assert_eq!((&*rate.id, &*permits.id), ("d.k", "d.k#concurrency"));
    let limit = permits.limited().expect("a limit");
    assert_eq!(
        (limit.algorithm(), limit.quota(), limit.window()),
        (Algorithm::Concurrency, 20, Micros::from_secs(30))
    );
    assert_eq!(permits.retry_after, Some(Micros::from_secs(2)));
    assert_eq!(
        errors("domain: d\ndescriptors:\n  - { key: k, concurrency: { timeout: 0s, limit: 1 } }\n"),
        ["a timeout is at least 1 microsecond"]
    );
    assert_eq!(
        errors("domain: d\ndescriptors:\n  - { key: k, concurrency: {} }\n"),
        ["there is no `limit`"]
    );
}

#[test]
fn costs_of_what_does_not_fit_in_line_are_told() {
    let loaded = loaded(
        "domain: d\ndescriptors:\n  - { key: a, rate_limit: { unit: day, limit: 10000, algorithm: sliding_log } }\n\
         \x20 - { key: b, rate_limit: { unit: day, limit: 1 } }\n",
    );
    let costly: Vec<_> = loaded
        .rules
        .rules()
        .iter()
        .filter_map(|rule| rule.cost().map(|cost| (rule, cost)))
        .map(|(rule, cost)| format!("{}: {cost}", rule.id))
        .collect();
    assert_eq!(
        costly,
        [
            "d.a: 64 B a counter and up to 161 kB more",
            "d.b: 64 B a counter"
        ]
    );
}

#[test]
fn times_of_permits_are_longer_than_nothing() {
    let told = |keys: &str| {
        let source = Source {
            name: "f.yaml".to_owned(),
            text: format!(
                "domain: d\ndescriptors: [ {{ key: k, concurrency: {{ limit: 1, {keys} }} }} ]\n"
            ),
        };
        let refused = load(&[source], &Options::default()).expect_err("it is refused");
        let [error] = refused.errors() else {
            panic!("one error: {refused}");
        };
        (
            error.message.clone(),
            error.help.clone().unwrap_or_default(),
        )
    };
    let both = |message: &str, help: &str| (message.to_owned(), help.to_owned());
    assert_eq!(
        told("timeout: 0s"),
        both(
            "a timeout is at least 1 microsecond",
            "write `timeout: 60s`"
        )
    );
    assert_eq!(
        told("retry_after: 0s"),
        both(
            "callers that are told to retry at once would never pause",
            "write `retry_after: 1s`, or leave it out"
        )
    );
}
