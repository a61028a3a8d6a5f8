use http::HeaderMap;
use ratekeeper_limiter::{Check, Limiter, LimiterOptions};
use ratekeeper_rules::{Entry, Options, Source, load};
use ratekeeper_store::{MemoryConfig, MemoryStore};

use super::{Denial, Headers, RequestStatus};

const RULES: &str = "
domain: d
descriptors:
- key: api_key
  rate_limit:
  - { window: 1h, limit: 2, algorithm: sliding_log, name: hourly }
  - { window: 1d, limit: 100 }
- key: big
  rate_limit: { window: 1h, limit: 0 }
";

fn limiter() -> Limiter<MemoryStore> {
    let source = Source {
        name: "rules.yaml".to_owned(),
        text: RULES.to_owned(),
    };
    let loaded = load(&[source], &Options::default()).expect("the rules are good");
    let store = MemoryStore::new(MemoryConfig::default()).expect("there is memory");
    Limiter::new(loaded.rules, store, LimiterOptions::default())
}

/// A caller that knows one denial must not be able to search for another key with the same fingerprint.
#[test]
fn the_fingerprint_of_a_secret_takes_the_seed_to_make() {
    let scopes = [limiter(), limiter()].map(|limiter| {
        let mut last = ask(&limiter, &ADA);
        while last.0 {
            last = ask(&limiter, &ADA);
        }
        let scope = last.2["error"]["scope"]
            .as_str()
            .expect("a text")
            .to_owned();
        let print = limiter.snapshot().fingerprint(ADA[0].value);
        assert_eq!(scope, format!("api_key:{print}"));
        scope
    });
    assert_ne!(
        scopes[0], scopes[1],
        "each limiter has a hash key of its own"
    );
    for scope in scopes {
        let print = scope.strip_prefix("api_key:~").expect("a fingerprint");
        let (hash, tail) = print.split_once('…').expect("the last characters");
        assert_eq!((hash.len(), tail), (16, "1815"));
    }
}

const ADA: [Entry<'static>; 1] = [Entry {
    key: "api_key",
    value: "ada-lovelace-1815",
}];

/// Asks, and answers the headers and the body of a denial.
fn ask(
    limiter: &Limiter<MemoryStore>,
    entries: &[Entry<'_>],
) -> (bool, HeaderMap, serde_json::Value) {
    let check = Check::new("d").descriptor(entries);
    let now = limiter.clock().now();
    limiter.ask_at(&check, now, |ruling| {
        let limits =
            RequestStatus::of(&ruling.policies(), ruling.decision, ruling.descriptors, now);
        let headers = Headers::default().lines(&limits).into_iter().collect();
        let body = Denial::new(limits, "d");
        let body = serde_json::to_value(body.body()).expect("it is JSON");
        (ruling.decision.allowed(), headers, body)
    })
}

fn header<'a>(headers: &'a HeaderMap, name: &str) -> &'a str {
    let value = headers.get(name).unwrap_or_else(|| panic!("no {name}"));
    value.to_str().expect("it is text")
}

#[test]
fn an_allowance_says_what_is_left() {
    let limiter = limiter();
    let (allowed, headers, _) = ask(&limiter, &ADA);
    assert!(allowed);
    assert_eq!(header(&headers, "x-ratelimit-limit"), "2");
    assert_eq!(header(&headers, "x-ratelimit-remaining"), "1");
    assert_eq!(
        header(&headers, "ratelimit-policy"),
        r#""hourly";q=2;w=3600, "d.api_key#1d";q=100;w=86400"#
    );
    let reset = header(&headers, "x-ratelimit-reset");
    assert_eq!(
        header(&headers, "ratelimit"),
        format!(r#""hourly";r=1;t={reset}"#)
    );
    assert!(headers.get("retry-after").is_none());
    assert!(headers.get("x-ratelimit-degraded").is_none());
}

/// That a store is away is told to end clients only where somebody asked for it.
#[test]
fn a_degraded_answer_is_told_where_that_is_wanted() {
    let limiter = limiter();
    let decision = limiter.check_now(&Check::new("d").descriptor(ADA));
    let mut limits = RequestStatus::new(&[], &decision, limiter.clock().now());
    limits.degraded = true;
    for (list, told) in [
        ("draft, x-ratelimit", false),
        ("degraded", true),
        ("none", false),
    ] {
        let headers: Headers = list.parse().expect("a list of headers");
        let headers: HeaderMap = headers.lines(&limits).into_iter().collect();
        assert_eq!(headers.contains_key("x-ratelimit-degraded"), told, "{list}");
    }
}

#[test]
fn a_denial_says_when_to_come_back_with_one_voice() {
    let limiter = limiter();
    ask(&limiter, &ADA);
    ask(&limiter, &ADA);
    let (allowed, headers, body) = ask(&limiter, &ADA);
    assert!(!allowed);
    let seconds = header(&headers, "retry-after");
    assert_eq!(header(&headers, "x-ratelimit-reset"), seconds);
    assert_eq!(header(&headers, "x-ratelimit-remaining"), "0");
    assert_eq!(
        header(&headers, "ratelimit"),
        format!(r#""hourly";r=0;t={seconds}"#)
    );
    assert!((1..=3_600).contains(&seconds.parse::<u64>().expect("a number")));
    let error = &body["error"];
    assert_eq!(error["code"], "RATE_LIMITED");
    assert_eq!(
        error["message"],
        format!("Rate limit exceeded. Retry after {seconds} seconds.")
    );
    assert_eq!(error["retry_after"].to_string(), seconds);
    assert_eq!(error["limit"], 2);
    assert_eq!(error["window"], "1h");
    let scope = error["scope"].as_str().expect("it is text");
    assert!(
        scope.starts_with("api_key:~") && scope.ends_with("1815"),
        "{scope}"
    );
    assert!(!body.to_string().contains("lovelace"), "{body}");
}

#[test]
fn a_denial_that_no_wait_ends_has_no_retry_time() {
    let limiter = limiter();
    let big = [Entry {
        key: "big",
        value: "",
    }];
    let (allowed, headers, body) = ask(&limiter, &big);
    assert!(!allowed);
    assert!(headers.get("retry-after").is_none());
    assert_eq!(header(&headers, "x-ratelimit-limit"), "0");
    assert!(body["error"]["retry_after"].is_null());
    let message = "Rate limit exceeded: this request costs more than the limit allows.";
    assert_eq!(body["error"]["message"], message);
}

#[test]
fn a_request_without_limits_gets_no_headers() {
    let limiter = limiter();
    let other = [Entry {
        key: "other",
        value: "x",
    }];
    let (allowed, headers, _) = ask(&limiter, &other);
    assert!(allowed);
    assert!(headers.is_empty());
    let decision = limiter.check_now(&Check::new("d").descriptor(other));
    let limits = RequestStatus::new(&[], &decision, ratekeeper_core::Timestamp::default());
    assert_eq!(limits.binding, None);
}
