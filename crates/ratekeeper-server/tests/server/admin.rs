//! The admin listener, and who may reach it.

use std::net::SocketAddr;
use std::sync::Arc;

use crate::certificates::put;
use crate::support::{PATIENCE, RULES, memory, request, start, start_from, start_with};
use ratekeeper_core::Micros;
use ratekeeper_limiter::{Clock, Limiter, LimiterOptions};
use ratekeeper_rules::{Options, ReadOptions, RuleSet};
use ratekeeper_server::{BindError, RulesLoader, RulesSource, Server, ServerConfig};
use ratekeeper_store::{MemoryConfig, MemoryStore};

#[tokio::test]
async fn every_metric_is_there_from_the_start_at_zero() {
    let running = start(RULES).await;
    for series in [
        r#"ratelimit_decisions_total{domain="d",rule="d.user",decision="allow"}"#,
        r#"ratelimit_decisions_total{domain="d",rule="d.user",decision="deny"}"#,
        r#"ratelimit_decisions_total{domain="d",rule="d.watched",decision="shadow_deny"}"#,
        r#"ratelimit_denied_total{domain="d",rule="d.plain"}"#,
        r#"ratelimit_failopen_total{domain="d",rule="d.plain",mode="local"}"#,
        r#"ratelimit_remaining_count{domain="d",rule="d.odd",plan=""}"#,
        r#"ratelimit_config_reload_total{result="error"}"#,
        "ratelimit_check_duration_seconds_count",
        "ratelimit_unknown_domain_total",
        "ratelimit_unmatched_total",
        "ratelimit_store_counters",
        "ratelimit_store_evicted_total",
    ] {
        assert_eq!(running.metric(series).await, 0.0, "{series}");
    }
    assert_eq!(
        running
            .metric("ratelimit_config_reload_total{result=\"success\"}")
            .await,
        1.0
    );
    running.stop().await;
}

#[tokio::test]
async fn a_clock_that_is_ahead_is_told() {
    let ahead = Clock::new().now().after(Micros::from_secs(1_800));
    let running = start_from(memory(), ahead, RULES, |_| {}).await;
    let told = running.metric("ratelimit_clock_ahead_seconds").await;
    assert!((1_200.0..=1_800.0).contains(&told), "{told}");
    running.stop().await;
}

#[tokio::test]
async fn metrics_count_decisions() {
    let running = start(RULES).await;
    let mut client = running.grpc().await;
    for _ in 0..3 {
        client
            .should_rate_limit(request("d", &[("plain", "a")]))
            .await
            .unwrap();
    }
    client
        .should_rate_limit(request("d", &[("x", "a")]))
        .await
        .unwrap();
    let plain = r#"{domain="d",rule="d.plain",decision="#;
    for (decision, count) in [("allow", 1.0), ("deny", 2.0), ("shadow_deny", 0.0)] {
        let series = format!("ratelimit_decisions_total{plain}\"{decision}\"}}");
        assert_eq!(running.metric(&series).await, count, "{series}");
    }
    assert_eq!(
        running
            .metric("ratelimit_check_duration_seconds_count")
            .await,
        4.0
    );
    assert_eq!(running.metric("ratelimit_unmatched_total").await, 1.0);
    assert_eq!(running.metric("ratelimit_store_counters").await, 1.0);
    let series = r#"ratelimit_remaining_bucket{le="0.0",domain="d",rule="d.plain",plan=""}"#;
    assert_eq!(running.metric(series).await, 3.0);
    running.stop().await;
}

#[tokio::test]
async fn rlconfig_lists_the_limits_in_force() {
    let running = start(RULES).await;
    let (status, text) = running.admin("/rlconfig").await;
    assert_eq!(status, 200);
    let lines: Vec<_> = text.lines().collect();
    assert_eq!(
        lines[0],
        "d.user: unit=YEAR requests_per_unit=3, shadow_mode: false, quota_mode: false"
    );
    assert_eq!(lines.len(), 6);
    let (status, index) = running.admin("/").await;
    assert_eq!(status, 200);
    assert!(index.contains("/metrics") && index.contains("/openapi.json"));
    assert_eq!(running.admin("/nothing").await.0, 404);
    running.stop().await;
}

#[tokio::test]
async fn other_names_than_loopback_are_refused() {
    let running = start(RULES).await;
    let to = running.addresses.admin;
    for (host, status) in [
        ("evil.example", 421),
        ("127.0.0.1.evil.example:6070", 421),
        ("localhost", 200),
    ] {
        let answer = running
            .send(to, "GET", "/metrics", &[("host", host)], "")
            .await;
        assert_eq!(answer.0, status, "{host}");
    }
    running.stop().await;
}

#[tokio::test]
async fn the_metrics_listener_shows_metrics_to_everyone_and_nothing_else() {
    let running = start_with(RULES, |config| {
        config.metrics = Some("127.0.0.1:0".parse::<SocketAddr>().unwrap().into())
    })
    .await;
    let to = running.addresses.metrics.unwrap();
    let (status, text) = running
        .send(
            to,
            "GET",
            "/metrics",
            &[("host", "node-7.example:9090")],
            "",
        )
        .await;
    assert_eq!(status, 200);
    assert!(text.contains("# TYPE ratelimit_denied_total counter\n"));
    let (status, index) = running.send(to, "GET", "/", &[], "").await;
    assert_eq!(status, 200);
    assert!(index.contains("GET /metrics\n"), "{index}");
    assert_eq!(running.send(to, "GET", "/rlconfig", &[], "").await.0, 404);
    assert_eq!(running.send(to, "POST", "/metrics", &[], "").await.0, 405);
    running.stop().await;
}

pub(crate) async fn bind(config: ServerConfig) -> Result<Server, BindError> {
    let source = RulesSource {
        path: "does-not-matter".into(),
        tenants: None,
        read: ReadOptions::default(),
        options: Options::default(),
    };
    let store = MemoryStore::new(MemoryConfig::default()).unwrap();
    let limiter = Limiter::new(RuleSet::default(), store.into(), LimiterOptions::default());
    Server::bind(config, Arc::new(limiter), RulesLoader::new(source)).await
}

#[tokio::test]
async fn an_admin_address_that_others_reach_is_refused() {
    let admin = "0.0.0.0:0".parse::<SocketAddr>().unwrap().into();
    let config = ServerConfig {
        admin,
        ..ServerConfig::default()
    };
    let error = bind(config).await.unwrap_err();
    assert!(matches!(error, BindError::AdminNotLoopback(_)));
    assert!(
        error.to_string().contains("use a loopback address"),
        "{error}"
    );
}

#[tokio::test]
async fn a_taken_address_is_named() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap();
    let config = ServerConfig {
        grpc: Some(address.into()),
        ..ServerConfig::default()
    };
    let error = bind(config).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        format!("cannot listen on {address} for grpc")
    );
}

#[cfg(unix)]
#[tokio::test]
async fn a_hangup_makes_it_look_at_the_rules() {
    let mut running = start_with(RULES, |config| config.watch.enabled = false).await;
    // It answers, so it listens for signals as well.
    running.admin("/").await;
    let longer = RULES.replace("requests_per_unit: 3,", "requests_per_unit: 30,");
    put(&running.dir.path().join("rules.yaml"), &longer);
    let me = std::process::id().to_string();
    let sent = std::process::Command::new("kill")
        .args(["-HUP", &me])
        .status()
        .unwrap();
    assert!(sent.success());
    let reloads = running.reloads.wait_for(|status| status.accepted == 2);
    tokio::time::timeout(PATIENCE, reloads)
        .await
        .unwrap()
        .unwrap();
    assert!(
        running
            .admin("/rlconfig")
            .await
            .1
            .contains("requests_per_unit=30,")
    );
    running.stop().await;
}

#[tokio::test]
async fn an_explanation_takes_nothing() {
    let running = start(RULES).await;
    let to = running.addresses.admin;
    let json = [("content-type", "application/json")];
    let body = r#"{"domain":"d","descriptors":[{"entries":[{"key":"plain","value":"a"}]}]}"#;
    for (used, answer) in [(false, "allow"), (true, "deny")] {
        if used {
            let spend = request("d", &[("plain", "a")]);
            running.grpc().await.should_rate_limit(spend).await.unwrap();
        }
        let (status, text) = running
            .send(to, "POST", "/admin/v1/explain", &json, body)
            .await;
        assert_eq!(status, 200, "{text}");
        let explanation: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(explanation["allowed"], !used);
        let limit = &explanation["descriptors"][0]["nodes"][0]["limits"][0];
        assert_eq!(limit["rule"], "d.plain");
        assert_eq!(limit["answer"], answer);
    }
    let series = r#"ratelimit_decisions_total{domain="d",rule="d.plain",decision="allow"}"#;
    assert_eq!(running.metric(series).await, 1.0);
    let (status, text) = running
        .send(to, "POST", "/admin/v1/explain", &json, "{}")
        .await;
    assert_eq!(status, 400, "{text}");
    running.stop().await;
}

#[tokio::test]
async fn who_asks_for_openmetrics_gets_it() {
    let running = start(RULES).await;
    let to = running.addresses.admin;
    let scrape = async |accept: &str| {
        let url = format!("http://{to}/metrics");
        let request = ::http::Request::get(url).header("accept", accept);
        let body = http_body_util::Empty::<bytes::Bytes>::new();
        let client =
            hyper_util::client::legacy::Client::builder(hyper_util::rt::TokioExecutor::new())
                .build_http();
        let response = client.request(request.body(body).unwrap()).await.unwrap();
        let kind = response.headers()["content-type"]
            .to_str()
            .unwrap()
            .to_owned();
        let text = http_body_util::BodyExt::collect(response.into_body())
            .await
            .unwrap();
        (kind, String::from_utf8(text.to_bytes().to_vec()).unwrap())
    };
    let (kind, text) = scrape("application/openmetrics-text;version=1.0.0,text/plain;q=0.5").await;
    assert!(
        kind.starts_with("application/openmetrics-text; version=1.0.0"),
        "{kind}"
    );
    assert!(text.contains("# TYPE ratelimit_denied counter\n"), "{text}");
    assert!(text.ends_with("# EOF\n"), "{text}");
    let (kind, text) = scrape("*/*").await;
    assert!(kind.starts_with("text/plain; version=0.0.4"), "{kind}");
    assert!(
        text.contains("# TYPE ratelimit_denied_total counter\n"),
        "{text}"
    );
    assert!(!text.contains("# EOF"), "{text}");
    running.stop().await;
}

/// The metrics page, on which dashboards and alerts are built, does not change by accident. After
/// an intended change: `UPDATE=1 cargo test -p ratekeeper-server`.
#[tokio::test]
async fn the_metrics_page_is_what_it_was() {
    let rules = "domain: d\ndescriptors:\n  - { key: k, rate_limit: { unit: hour, requests_per_unit: 5 } }\n";
    let running = start(rules).await;
    let (_, text) = running.admin("/metrics").await;
    // How large the store is depends on the machine's and the store's ways; no two processes are alike.
    let varies = [
        "ratelimit_store_",
        "process_",
        "ratelimit_config_last_reload_timestamp_seconds",
    ];
    let line = |line: &str| match line.rsplit_once(' ') {
        Some((name, _)) if varies.iter().any(|begin| name.starts_with(begin)) => {
            format!("{name} N\n")
        }
        _ => format!("{line}\n"),
    };
    let text: String = text.lines().map(line).collect();
    let kept = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/server/metrics.txt");
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(kept, &text).unwrap();
    }
    assert_eq!(text, std::fs::read_to_string(kept).unwrap());
    running.stop().await;
}

/// Any page can have its reader's browser post a form here.
#[tokio::test]
async fn other_pages_and_forms_are_refused() {
    let running = start(RULES).await;
    let to = running.addresses.admin;
    let body = r#"{"domain":"d","descriptors":[{"entries":[{"key":"plain","value":"a"}]}]}"#;
    let own = format!("http://{to}");
    let json = ("content-type", "application/json");
    for (headers, status) in [
        (&[json][..], 200),
        (&[json, ("origin", &own)], 200),
        (&[json, ("origin", "http://evil.example")], 403),
        (&[json, ("origin", "http://localhost:3000")], 403),
        (&[json, ("origin", "null")], 403),
        (&[json, ("origin", &own), ("origin", "null")], 403),
        (&[], 415),
        (&[("content-type", "text/plain")], 415),
        (
            &[("content-type", "application/x-www-form-urlencoded")],
            415,
        ),
    ] {
        let answer = running
            .send(to, "POST", "/admin/v1/explain", headers, body)
            .await;
        assert_eq!(answer.0, status, "{headers:?}");
    }
    let evil = [("origin", "http://evil.example")];
    assert_eq!(running.send(to, "GET", "/rlconfig", &evil, "").await.0, 403);
    running.stop().await;
}

/// Shadow mode is there to show whom a rule would deny.
#[tokio::test]
async fn decisions_by_value_add_up_to_all_decisions() {
    let rules = "domain: d
descriptors:
- key: user
  shadow_mode: true
  detailed_metric: true
  rate_limit: { unit: year, requests_per_unit: 2, algorithm: fixed_window }
";
    let running = start(rules).await;
    let mut client = running.grpc().await;
    for _ in 0..5 {
        let ask = request("d", &[("user", "ada")]);
        client.should_rate_limit(ask).await.unwrap();
    }
    for (decision, count) in [("allow", 2.0), ("deny", 0.0), ("shadow_deny", 3.0)] {
        let rule = r#"domain="d",rule="d.user""#;
        let all = format!("ratelimit_decisions_total{{{rule},decision=\"{decision}\"}}");
        let of_value = format!(
            "ratelimit_value_decisions_total{{{rule},value=\"user_ada\",decision=\"{decision}\"}}"
        );
        assert_eq!(running.metric(&all).await, count, "{all}");
        assert_eq!(running.metric(&of_value).await, count, "{of_value}");
    }
    running.stop().await;
}
