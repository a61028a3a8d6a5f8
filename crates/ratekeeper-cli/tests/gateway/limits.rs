//! Requests over their limit do not reach the upstream.

use crate::support::{Gateway, RULES, Upstream, ok};

#[test]
fn requests_pass_until_their_limit_and_are_told_of_it() {
    let upstream = Upstream::start(|_| ok("hello"));
    let gateway = Gateway::start(&upstream.url(), &[]);
    for left in ["2", "1", "0"] {
        let answer = gateway.get("/", &["X-Api-Key: few"]);
        assert_eq!((answer.status, answer.body.as_str()), (200, "hello"));
        assert_eq!(
            answer.header("x-ratelimit-remaining"),
            Some(left),
            "{answer:?}"
        );
        assert!(answer.header("ratelimit-policy").is_some(), "{answer:?}");
    }
    let denied = gateway.get("/", &["X-Api-Key: few"]);
    assert_eq!(denied.status, 429);
    assert!(
        denied.body.contains(r#""code":"RATE_LIMITED""#),
        "{denied:?}"
    );
    let retry_after = denied
        .header("retry-after")
        .and_then(|text| text.parse::<u64>().ok());
    assert!(retry_after.is_some_and(|seconds| seconds > 0), "{denied:?}");
    assert_eq!(
        upstream.asked().len(),
        3,
        "a denied request goes no further"
    );
    let count = r#"ratelimit_gateway_requests_total{upstream="upstream",status="2xx"} 3"#;
    gateway.tells("/metrics", count);
    let own = r#"ratelimit_gateway_requests_total{upstream="",status="4xx"} 1"#;
    gateway.tells("/metrics", own);
}

#[test]
fn limits_can_be_watched_or_left_out() {
    for mode in ["shadow", "off"] {
        let upstream = Upstream::start(|_| ok(""));
        let gateway = Gateway::start(&upstream.url(), &["--limits", mode]);
        for _ in 0..5 {
            let answer = gateway.get("/", &["X-Api-Key: few"]);
            assert_eq!(
                (answer.status, answer.header("x-ratelimit-limit")),
                (200, None),
                "{mode}"
            );
        }
        let metrics = gateway.told("/metrics");
        let denied = r#"ratelimit_gateway_held_total{what="shadow_denied"} "#;
        let count = metrics.lines().find_map(|line| line.strip_prefix(denied));
        let expected = if mode == "shadow" { "2" } else { "0" };
        assert_eq!(count, Some(expected), "{mode}");
    }
}

#[test]
fn changed_rules_are_in_force_without_a_restart() {
    let upstream = Upstream::start(|_| ok(""));
    let gateway = Gateway::start(&upstream.url(), &[]);
    assert_eq!(
        gateway
            .get("/", &["X-Api-Key: few"])
            .header("x-ratelimit-limit"),
        Some("3")
    );
    let changed = RULES.replace("limit: 3 ", "limit: 7 ");
    std::fs::write(gateway.folder().join("rules.yaml"), changed).expect("a file can be written");
    ratekeeper_testkit::process::eventually("the new limit is in force", || {
        let answer = gateway.get("/", &["X-Api-Key: few"]);
        answer.header("x-ratelimit-limit") == Some("7")
    });
}

#[test]
fn no_request_waits_longer_than_settings_say_nor_takes_a_turn_for_it() {
    let upstream = Upstream::start(|_| ok(""));
    let rules = "
domain: shop
descriptors:
- key: api_key
  rate_limit: { window: 1h, limit: 10, algorithm: leaky_bucket }
";
    for [name, most] in [["--wait-max", "1m"], ["--waiting-max", "0"]] {
        let args = ["--upstream", &upstream.url(), name, most];
        let gateway = Gateway::start_with(rules, "", &args);
        assert_eq!(gateway.get("/", &["X-Api-Key: ada"]).status, 200);
        for _ in 0..20 {
            let denied = gateway.get("/", &["X-Api-Key: ada"]);
            assert_eq!(denied.status, 429, "{denied:?}");
            let wait = denied
                .header("retry-after")
                .and_then(|text| text.parse().ok());
            // A turn comes every six minutes.
            assert!(wait.is_some_and(|secs: u64| secs <= 360), "{denied:?}");
        }
    }
}
