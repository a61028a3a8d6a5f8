//! `ratekeeper.v1` as JSON.

use std::net::{Ipv4Addr, SocketAddr};

use ratekeeper_trace::Tracer;
use serde_json::{Value, json};

use crate::support::{Running, start, start_with};

/// Windows whose next edge is decades away: no test sees them end.
const RULES: &str = "
domain: d
descriptors:
  - key: user
    rate_limit: { window: 10000d, limit: 3, algorithm: fixed_window }
  - key: tokens
    rate_limit: { window: 10000d, limit: 1000, algorithm: fixed_window }
  - key: queue
    rate_limit: { window: 8760h, limit: 3, algorithm: leaky_bucket }
  - key: job
    concurrency: { limit: 1, timeout: 60s }
";

fn of(key: &str) -> Value {
    json!({"domain": "d", "descriptors": [{"entries": [{"key": key, "value": "a"}]}]})
}

fn with(mut body: Value, name: &str, value: Value) -> Value {
    body[name] = value;
    body
}

async fn remaining(running: &Running, key: &str) -> u64 {
    let (status, answer) = running.post("/v1/peek", &of(key)).await;
    assert_eq!(status, 200, "{answer}");
    answer["remaining"].as_u64().unwrap()
}

fn code(answer: &Value) -> (&str, &str) {
    let text = |name: &str| answer[name].as_str().unwrap_or_default();
    assert!(!text("detail").is_empty(), "{answer}");
    (text("code"), text("field"))
}

#[tokio::test]
async fn a_peek_says_whether_one_more_would_pass() {
    let running = start(RULES).await;
    for left in [3, 2, 1] {
        let (_, peek) = running.post("/v1/peek", &of("user")).await;
        assert_eq!(
            (&peek["decision"], &peek["remaining"]),
            (&json!("allow"), &json!(left))
        );
        running.post("/v1/check", &of("user")).await;
    }
    let (_, peek) = running.post("/v1/peek", &of("user")).await;
    assert_eq!(
        (&peek["decision"], &peek["remaining"]),
        (&json!("deny"), &json!(0))
    );
    assert!(peek["retry_after_ms"].as_u64() > Some(0), "{peek}");
    running.stop().await;
}

#[tokio::test]
async fn who_says_how_long_it_waits_is_told_how_it_stands() {
    let running = start(RULES).await;
    let body = with(of("queue"), "wait_ms_max", json!(1_000));
    let body = with(body, "standing", json!(true));
    let (_, first) = running.post("/v1/check", &body).await;
    let policy = json!({"name": "d.queue", "limit": 3, "window_us": 31_536_000_000_000_u64});
    assert_eq!(first["decision"], "allow");
    assert_eq!(first["standing"]["policies"], json!([policy]));
    assert_eq!(first["standing"]["binding"]["policy"], policy);
    let (_, many) = running.post("/v1/checks", &json!({"checks": [body]})).await;
    let second = &many["results"][0];
    assert_eq!(second["decision"], "deny");
    assert_eq!(second["standing"]["scope"], "queue:a");
    let wait = &second["standing"]["binding"]["retry_after_us"];
    assert!(wait.as_u64() > Some(1_000_000), "{many}");
    // What was denied took no turn.
    let (_, third) = running.post("/v1/check", &of("queue")).await;
    let delay = third["delay_ms"].as_u64();
    assert!(delay.is_some_and(|ms| ms < 3_000 * 3_600_000), "{third}");
    assert_eq!(third.get("standing"), None);
    let held = with(of("job"), "standing", json!(true));
    let (_, held) = running.post("/v1/acquire", &held).await;
    let policy = json!({"name": "d.job#concurrency", "limit": 1});
    assert_eq!(held["standing"]["policies"], json!([policy]));
    running.stop().await;
}

#[tokio::test]
async fn permits_go_their_way() {
    let running = start(RULES).await;
    let (_, held) = running.post("/v1/acquire", &of("job")).await;
    assert_eq!(held["decision"], "allow");
    let permit = json!({"permit": held["permit"]});
    let (_, denied) = running.post("/v1/acquire", &of("job")).await;
    assert_eq!(
        (&denied["decision"], denied.get("permit")),
        (&json!("deny"), None)
    );
    assert_eq!(denied["rule"], "d.job#concurrency");
    let (status, renewed) = running.post("/v1/renew", &permit).await;
    assert_eq!(
        (status, &renewed["expires_after_ms"]),
        (200, &json!(60_000))
    );
    for was_held in [true, false] {
        let released = running.post("/v1/release", &permit).await;
        assert_eq!(released, (200, json!({"was_held": was_held})));
    }
    let (status, refused) = running.post("/v1/renew", &permit).await;
    assert_eq!((status, code(&refused)), (409, ("NOT_HELD", "permit")));
    let (_, free) = running.post("/v1/acquire", &of("user")).await;
    assert_eq!(
        (&free["decision"], free.get("permit")),
        (&json!("allow"), None)
    );
    running.stop().await;
}

#[tokio::test]
async fn reservations_go_their_way() {
    let running = start(RULES).await;
    let wanted = with(of("tokens"), "hits", json!(600));
    let wanted = with(wanted, "idempotency_key", json!("k"));
    let (_, first) = running.post("/v1/reserve", &wanted).await;
    let (_, again) = running.post("/v1/reserve", &wanted).await;
    assert_eq!(
        (&first["repeated_before"], &again["repeated_before"]),
        (&json!(false), &json!(true))
    );
    assert_eq!(first["reservation"], again["reservation"]);
    assert_eq!(remaining(&running, "tokens").await, 400);
    let reservation = json!({"reservation": first["reservation"]});
    let commit = |hits: u64| with(reservation.clone(), "hits", json!(hits));
    let (status, refused) = running.post("/v1/commit", &commit(601)).await;
    assert_eq!(
        (status, code(&refused)),
        (400, ("INVALID_ARGUMENT", "hits"))
    );
    for repeated in [false, true] {
        let (_, settled) = running.post("/v1/commit", &commit(100)).await;
        let expected =
            json!({"given_back": 500, "limits": 1, "limits_gone": 0, "repeated_before": repeated});
        assert_eq!(settled, expected);
    }
    let (status, refused) = running.post("/v1/cancel", &reservation).await;
    assert_eq!((status, code(&refused)), (409, ("CONFLICT", "reservation")));
    assert_eq!(remaining(&running, "tokens").await, 900);
    let (_, other) = running
        .post("/v1/reserve", &with(of("tokens"), "hits", json!(900)))
        .await;
    let (_, denied) = running
        .post("/v1/reserve", &with(of("tokens"), "hits", json!(1)))
        .await;
    assert_eq!(
        (&denied["decision"], denied.get("reservation")),
        (&json!("deny"), None)
    );
    let (_, cancelled) = running
        .post("/v1/cancel", &json!({"reservation": other["reservation"]}))
        .await;
    assert_eq!(cancelled["given_back"], 900);
    assert_eq!(remaining(&running, "tokens").await, 900);
    running.stop().await;
}

#[tokio::test]
async fn refunds_and_limits_brought_along() {
    let running = start(RULES).await;
    running.post("/v1/check", &of("user")).await;
    let (status, left) = running.post("/v1/refund", &of("user")).await;
    assert_eq!((status, &left["remaining"]), (200, &json!(3)));
    let own = |unit: &str| {
        let mut body = of("user");
        body["descriptors"][0]["limit"] = json!({"requests_per_unit": 1, "unit": unit});
        body
    };
    for decision in ["allow", "deny"] {
        let (_, answer) = running.post("/v1/check", &own("year")).await;
        assert_eq!(
            (&answer["decision"], &answer["rule"]),
            (&json!(decision), &Value::Null)
        );
    }
    let mut huge = own("year");
    huge["descriptors"][0]["limit"]["requests_per_unit"] = json!(9_007_199_254_740_992_u64);
    for (path, body, field) in [
        ("/v1/check", huge, "descriptors[0].limit.requests_per_unit"),
        ("/v1/check", own("fortnight"), "descriptors[0].limit.unit"),
        ("/v1/refund", own("year"), "descriptors[0].limit"),
        ("/v1/acquire", own("year"), "descriptors[0].limit"),
    ] {
        let (status, refused) = running.post(path, &body).await;
        assert_eq!(
            (status, code(&refused)),
            (400, ("INVALID_ARGUMENT", field)),
            "{path}"
        );
    }
    running.stop().await;
}

#[tokio::test]
async fn a_check_with_a_key_is_timed_and_traced_as_others_are() {
    let (tracer, mut spans) = Tracer::new(1.0);
    let running = start_with(RULES, |config| config.tracer = Some(tracer)).await;
    let keyed = with(of("user"), "idempotency_key", json!("k"));
    let (status, answer) = running.post("/v1/check", &keyed).await;
    assert_eq!(status, 200, "{answer}");
    let timed = running.metric("ratelimit_check_duration_seconds_count");
    assert_eq!(timed.await, 1.0);
    let spans = spans.take();
    let checks = spans.iter().filter(|span| span.name == "check");
    assert_eq!(checks.count(), 1);
    let mut own = keyed;
    own["descriptors"][0]["limit"] = json!({"requests_per_unit": 1, "unit": "year"});
    let (status, refused) = running.post("/v1/check", &own).await;
    assert_eq!(status, 400);
    let told = refused["detail"].as_str().unwrap();
    assert!(told.contains("idempotency_key"), "{told}");
    running.stop().await;
}

#[tokio::test]
async fn nonsense_is_refused_by_its_field() {
    let running = start(RULES).await;
    let reserve = with(of("tokens"), "hits", json!(1));
    let mut nothing = of("user");
    nothing["descriptors"][0]["hits"] = json!(0);
    let cases = [
        ("/v1/peek", json!({"domain": "d"}), "descriptors"),
        (
            "/v1/peek",
            with(of("user"), "idempotency_key", json!("k")),
            "idempotency_key",
        ),
        (
            "/v1/acquire",
            with(of("job"), "idempotency_key", json!("x".repeat(256))),
            "idempotency_key",
        ),
        ("/v1/acquire", with(of("job"), "hits", json!(1)), "hits"),
        ("/v1/release", json!({}), "permit"),
        ("/v1/release", json!({"permit": "x"}), "permit"),
        ("/v1/renew", json!({"permit": 7}), "permit"),
        ("/v1/reserve", of("tokens"), "hits"),
        (
            "/v1/reserve",
            with(reserve.clone(), "hits", json!(0)),
            "hits",
        ),
        (
            "/v1/reserve",
            with(reserve.clone(), "ttl_ms", json!(3_600_001)),
            "ttl_ms",
        ),
        ("/v1/reserve", with(reserve, "domain", json!("")), "domain"),
        ("/v1/commit", json!({"reservation": ""}), "hits"),
        (
            "/v1/commit",
            json!({"reservation": "", "hits": 1}),
            "reservation",
        ),
        ("/v1/cancel", json!({"reservation": "AXA"}), "reservation"),
        ("/v1/cancel", json!([]), "body"),
        ("/v1/refund", nothing, "descriptors[0].hits"),
    ];
    for (path, body, field) in cases {
        let (status, refused) = running.post(path, &body).await;
        assert_eq!(
            (status, code(&refused)),
            (400, ("INVALID_ARGUMENT", field)),
            "{path} {body}"
        );
    }
    running.stop().await;
}

#[tokio::test]
async fn other_methods_and_tokens_are_refused() {
    let running = start(RULES).await;
    for path in [
        "check", "checks", "peek", "acquire", "release", "renew", "reserve", "commit", "cancel",
        "refund",
    ] {
        let to = running.addresses.http;
        let head = format!("GET /v1/{path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n");
        let answer = crate::support::raw(to, head.as_bytes()).await;
        assert!(answer.starts_with("HTTP/1.1 405 "), "{answer}");
        let allow = answer
            .lines()
            .find(|line| line.to_ascii_lowercase().starts_with("allow:"));
        assert!(allow.is_some_and(|line| line.contains("POST")), "{answer}");
    }
    let (status, body) = running.http("POST", "/v1/nothing", "{}").await;
    let body: Value = serde_json::from_str(&body).unwrap();
    assert_eq!((status, code(&body).0), (404, "NOT_FOUND"));
    let stranger = [("authorization", "Bearer x")];
    let body = of("job").to_string();
    let (status, body) = running
        .send(
            running.addresses.http,
            "POST",
            "/v1/acquire",
            &stranger,
            &body,
        )
        .await;
    let body: Value = serde_json::from_str(&body).unwrap();
    assert_eq!((status, code(&body).0), (401, "UNAUTHENTICATED"));
    running.stop().await;
}

/// The requests that need a permission, with a body for each.
fn powers() -> [(&'static str, Value); 4] {
    let mut own = of("user");
    own["descriptors"][0]["limit"] = json!({"requests_per_unit": 1, "unit": "year"});
    [
        ("/v1/acquire", of("job")),
        ("/v1/refund", of("user")),
        ("/v1/check", own.clone()),
        ("/v1/checks", json!({"checks": [own]})),
    ]
}

#[tokio::test]
async fn web_pages_have_no_permissions() {
    let running = start(RULES).await;
    let to = running.addresses.http;
    let host = to.to_string();
    let (own, cheap) = (format!("http://{host}"), ("content-type", "text/plain"));
    let json = ("content-type", "application/json");
    let cases: [(u16, &[(&str, &str)]); 6] = [
        (415, &[("origin", &own)]),
        (415, &[cheap]),
        (403, &[json, ("origin", "http://evil.example")]),
        (403, &[json, ("origin", "null")]),
        (
            421,
            &[
                json,
                ("host", "evil.example:8080"),
                ("origin", "http://evil.example:8080"),
            ],
        ),
        (200, &[json, ("origin", &own)]),
    ];
    for (path, body) in powers() {
        for (expected, headers) in cases {
            let (status, answer) = running
                .send(to, "POST", path, headers, &body.to_string())
                .await;
            assert_eq!(status, expected, "{path} {headers:?}: {answer}");
        }
    }
    // What everybody may, programs of any origin may. No browser sends a type that is JSON for a page of another origin.
    let origin = ("origin", "http://evil.example");
    let body = of("tokens").to_string();
    for (expected, headers) in [(415, &[origin][..]), (200, &[json, origin])] {
        let checked = running.send(to, "POST", "/v1/check", headers, &body).await;
        assert_eq!(checked.0, expected, "{}", checked.1);
    }
    running.stop().await;
}

#[tokio::test]
async fn on_a_listener_that_others_reach_everybody_shows_who_it_is() {
    let everywhere = SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), 0);
    let running = start_with(RULES, |config| config.http = Some(everywhere.into())).await;
    let to = SocketAddr::new(Ipv4Addr::LOCALHOST.into(), running.addresses.http.port());
    for (path, body) in powers() {
        let json = [("content-type", "application/json")];
        let (status, answer) = running
            .send(to, "POST", path, &json, &body.to_string())
            .await;
        assert_eq!(status, 401, "{path}: {answer}");
    }
    running.stop().await;
}
