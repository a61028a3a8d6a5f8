//! The short check: an identifier, and a limit of its own or of a rule.

use std::time::{SystemTime, UNIX_EPOCH};

use ratekeeper_proto::ratekeeper::v1::rate_limiter_service_client::RateLimiterServiceClient;
use ratekeeper_proto::ratekeeper::v1::{LimitBatchRequest, LimitRequest};
use ratekeeper_server::OnUnreadable;
use ratekeeper_trace::Tracer;
use serde_json::{Value, json};
use tonic::Code;

use crate::support::{Running, start, start_with};

/// Windows whose next edge is decades away: no test sees them end.
const RULES: &str = "
domain: d
descriptors:
  - key: identifier
    rate_limit: { window: 300d, limit: 2 }
  - key: api
    value: mail
    descriptors:
      - key: user
        rate_limit: { window: 300d, limit: 2 }
        descriptors:
          - key: folder
            rate_limit: { window: 300d, limit: 1 }
  - key: fixed
    value: one
    rate_limit: { window: 300d, limit: 1 }
  - key: path
    value: /a/*
    rate_limit: { window: 300d, limit: 1 }
";

fn epoch_ms() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    u64::try_from(now.as_millis()).unwrap()
}

async fn limit(running: &Running, body: Value) -> Value {
    let (status, answer) = running.post("/v1/limit", &body).await;
    assert_eq!(status, 200, "{body}: {answer}");
    answer
}

#[tokio::test]
async fn an_identifier_and_a_limit_are_enough() {
    let running = start(RULES).await;
    let ask = || {
        limit(
            &running,
            json!({"identifier": "ada", "limit": 2, "duration": "1h"}),
        )
    };
    let before = epoch_ms();
    let first = ask().await;
    assert_eq!(
        (&first["success"], &first["limit"], &first["remaining"]),
        (&json!(true), &json!(2), &json!(1))
    );
    let reset = first["reset"].as_u64().unwrap();
    assert!(
        (before + 3_590_000..=epoch_ms() + 3_600_001).contains(&reset),
        "{first}"
    );
    assert!(first.get("retry_after_ms").is_none(), "{first}");
    ask().await;
    let denied = ask().await;
    assert_eq!(
        (&denied["success"], &denied["remaining"]),
        (&json!(false), &json!(0))
    );
    assert!(denied["retry_after_ms"].as_u64() > Some(0), "{denied}");
    // Neither the rules nor other namespaces count these, and windows are written in three ways.
    for body in [
        json!({"rule": "d.identifier", "identifier": "ada"}),
        json!({"identifier": "ada", "limit": 2, "duration": "1h", "domain": "d"}),
        json!({"identifier": "ada", "limit": 2, "duration": "2 h"}),
        json!({"identifier": "ada", "limit": 2, "duration": 60_000}),
        json!({"identifier": "bob", "limit": 2, "duration": 3_600_000}),
    ] {
        assert_eq!(limit(&running, body).await["remaining"], 1);
    }
    let bucket = json!({"identifier": "ada", "limit": 1, "duration": "1d", "burst": 9, "cost": 4});
    assert_eq!(limit(&running, bucket).await["remaining"], 5);
    let never = json!({"identifier": "eve", "limit": 1, "duration": "1d", "cost": 4});
    let never = limit(&running, never).await;
    assert_eq!(
        (&never["success"], &never["remaining"]),
        (&json!(false), &json!(1))
    );
    assert!(never.get("retry_after_ms").is_none(), "{never}");
    // A higher limit keeps what was counted.
    let raised = json!({"identifier": "ada", "limit": 5, "duration": "1h"});
    assert_eq!(limit(&running, raised).await["remaining"], 2);
    running.stop().await;
}

#[tokio::test]
async fn a_rule_is_named_by_its_id() {
    let running = start(RULES).await;
    let ask = |rule: &str| json!({"rule": rule, "identifier": "ada"});
    assert_eq!(
        limit(&running, ask("d.api_mail.user")).await["remaining"],
        1
    );
    let entries = json!({"domain": "d", "entries": {"api": "mail", "user": "ada"}});
    let (_, check) = running.post("/v1/check", &entries).await;
    assert_eq!(
        (&check["rule"], &check["remaining"]),
        (&json!("d.api_mail.user"), &json!(0))
    );
    assert_eq!(
        limit(&running, ask("d.api_mail.user")).await["success"],
        false
    );
    for rule in ["d.api_mail.user.folder", "d.fixed_one", "d.nothing"] {
        let (status, refused) = running.post("/v1/limit", &ask(rule)).await;
        assert_eq!(
            (status, &refused["field"]),
            (400, &json!("rule")),
            "{rule}: {refused}"
        );
    }
    // Identifiers of a pattern match it; each has a counter of its own.
    let of_pattern = |identifier: &str| json!({"rule": "d.path_/a/*", "identifier": identifier});
    for (identifier, success) in [("/a/b", true), ("/a/b", false), ("/a/c", true)] {
        let answer = limit(&running, of_pattern(identifier)).await;
        assert_eq!(answer["success"], success, "{identifier}: {answer}");
    }
    for stranger in ["ada", "/b"] {
        let answer = limit(&running, of_pattern(stranger)).await;
        assert_eq!(answer["success"], false, "{stranger}: {answer}");
    }
    running.stop().await;
}

#[tokio::test]
async fn what_makes_no_sense_is_refused_by_its_field() {
    let running = start(RULES).await;
    let whole = json!({"identifier": "ada", "limit": 2, "duration": "1h"});
    for (field, value) in [
        ("limit", json!(0)),
        ("limit", Value::Null),
        ("limit", json!(u64::MAX)),
        ("duration", Value::Null),
        ("duration", json!(0)),
        ("duration", json!("0s")),
        ("duration", json!("36525d")),
        ("duration", json!("soon")),
        ("algorithm", json!("concurrency")),
        ("algorithm", json!("none")),
        ("burst", json!(0)),
        ("cost", json!(-1)),
        ("rule", json!("d.identifier")),
    ] {
        let mut body = whole.clone();
        body[field] = value;
        let (status, refused) = running.post("/v1/limit", &body).await;
        assert_eq!(status, 400, "{field}: {refused}");
        let told = refused["field"].as_str().unwrap();
        let expected = match field {
            "rule" => "limit",
            "burst" => "limit",
            field => field,
        };
        assert_eq!(told, expected, "{refused}");
    }
    running.stop().await;
}

/// A plan is the tenant's, not the caller's to choose.
#[tokio::test]
async fn the_limit_of_one_plan_is_not_named() {
    let running = start(
        "
domain: d
tenant: customer
plans: [free, pro]
descriptors:
  - key: customer
    rate_limit: { window: 300d, limit: 2 }
    plans:
      pro: { window: 300d, limit: 9 }
",
    )
    .await;
    let of_default = json!({"rule": "d.customer", "identifier": "ada"});
    assert_eq!(limit(&running, of_default).await["remaining"], 1);
    let of_pro = json!({"rule": "d.customer@pro", "identifier": "ada"});
    let (status, refused) = running.post("/v1/limit", &of_pro).await;
    assert_eq!(
        (status, &refused["field"]),
        (400, &json!("rule")),
        "{refused}"
    );
    running.stop().await;
}

/// Clients choose identifiers and costs: none of them lifts the limits of others by one that cannot be counted.
#[tokio::test]
async fn what_a_client_can_cause_is_denied_by_itself() {
    let running = start(RULES).await;
    let long = "i".repeat(70_000);
    let rule = |identifier: &str| json!({"identifier": identifier, "rule": "d.identifier"});
    let own = |identifier: &str| json!({"identifier": identifier, "limit": 2, "duration": "1h"});
    let dear = json!({"identifier": "ada", "rule": "d.identifier", "cost": u64::MAX});
    let denied = [rule(&long), rule(""), dear, own(&long), own("")];
    for body in &denied {
        let answer = limit(&running, body.clone()).await;
        let told = (
            &answer["success"],
            &answer["remaining"],
            answer.get("retry_after_ms"),
        );
        assert_eq!(told, (&json!(false), &json!(0), None), "{answer}");
    }
    let mut all = vec![rule("bob")];
    all.extend(denied);
    all.push(rule("ada"));
    let (status, answer) = running.post("/v1/limits", &json!({ "limits": all })).await;
    assert_eq!(status, 200, "{answer}");
    let results = answer["results"].as_array().unwrap();
    let passed: Vec<_> = results
        .iter()
        .map(|result| result["success"] == true)
        .collect();
    assert_eq!(passed, [true, false, false, false, false, false, true]);
    let series = "ratelimit_unreadable_requests_total{protocol=\"v1\",reason=\"out_of_bounds\"}";
    assert_eq!(running.metric(series).await, 10.0);
    // Rules and limits are the integrator's: those are errors still.
    let wrong = json!({"identifier": long, "rule": "d.nothing"});
    assert_eq!(running.post("/v1/limit", &wrong).await.0, 400);
    running.stop().await;

    let running = start_with(RULES, |config| config.on_unreadable = OnUnreadable::Error).await;
    let (status, refused) = running
        .post("/v1/limits", &json!({"limits": [rule("a"), rule("")]}))
        .await;
    assert_eq!(
        (status, &refused["field"]),
        (400, &json!("limits[1].identifier"))
    );
    running.stop().await;
}

#[tokio::test]
async fn web_pages_may_not_bring_limits_but_may_name_rules() {
    let running = start(RULES).await;
    let headers = [
        ("content-type", "application/json"),
        ("origin", "https://evil.example"),
    ];
    let ask = async |body: &str| {
        let to = running.addresses.http;
        running
            .send(to, "POST", "/v1/limit", &headers, body)
            .await
            .0
    };
    assert_eq!(
        ask(r#"{"identifier": "a", "limit": 2, "duration": 1000}"#).await,
        403
    );
    assert_eq!(
        ask(r#"{"identifier": "a", "rule": "d.identifier"}"#).await,
        200
    );
    running.stop().await;
}

#[tokio::test]
async fn many_are_decided_in_order_or_none() {
    let running = start(RULES).await;
    let own = json!({"identifier": "ada", "limit": 1, "duration": "1h"});
    let rule = json!({"identifier": "ada", "rule": "d.identifier"});
    let body = json!({"limits": [own, rule, own]});
    let (status, answer) = running.post("/v1/limits", &body).await;
    assert_eq!(status, 200, "{answer}");
    let results = answer["results"].as_array().unwrap();
    let passed: Vec<_> = results
        .iter()
        .map(|result| result["success"].as_bool())
        .collect();
    assert_eq!(passed, [Some(true), Some(true), Some(false)]);
    let wrong = json!({"limits": [rule, {"identifier": "ada", "limit": 1}]});
    let (status, refused) = running.post("/v1/limits", &wrong).await;
    assert_eq!(
        (status, &refused["field"]),
        (400, &json!("limits[1].duration"))
    );
    assert_eq!(
        limit(&running, rule).await["remaining"],
        0,
        "the first was not decided either"
    );
    running.stop().await;
}

#[tokio::test]
async fn many_are_timed_and_traced_as_many_checks_are() {
    let (tracer, mut spans) = Tracer::new(1.0);
    let running = start_with(RULES, |config| config.tracer = Some(tracer)).await;
    let rule = |identifier: &str| json!({"identifier": identifier, "rule": "d.identifier"});
    let body = json!({"limits": [rule("ada"), rule("bob")]});
    let (status, answer) = running.post("/v1/limits", &body).await;
    assert_eq!(status, 200, "{answer}");
    let timed = running.metric("ratelimit_check_duration_seconds_count");
    assert_eq!(timed.await, 1.0);
    let spans = spans.take();
    let batch = spans.iter().find(|span| span.name == "checks");
    let batch = batch.expect("a span of the batch");
    let checks = spans.iter().filter(|span| span.name == "check");
    let parents: Vec<_> = checks.map(|check| check.parent).collect();
    assert_eq!(parents, [Some(batch.span_id); 2]);
    running.stop().await;
}

#[tokio::test]
async fn the_same_over_grpc() {
    let running = start(RULES).await;
    let address = format!("http://{}", running.addresses.grpc);
    let mut client = RateLimiterServiceClient::connect(address).await.unwrap();
    let own = LimitRequest {
        identifier: "ada".to_owned(),
        limit: 1,
        duration_ms: 3_600_000,
        ..LimitRequest::default()
    };
    let answer = client.limit(own.clone()).await.unwrap().into_inner();
    assert!(answer.success && answer.reset_at_ms > epoch_ms());
    let named = LimitRequest {
        rule: "d.identifier".to_owned(),
        identifier: "ada".to_owned(),
        ..LimitRequest::default()
    };
    let batch = LimitBatchRequest {
        limits: vec![own.clone(), named],
    };
    let answers = client
        .limit_batch(batch)
        .await
        .unwrap()
        .into_inner()
        .results;
    assert_eq!((answers[0].success, answers[1].success), (false, true));
    assert!(answers[0].retry_after_ms > Some(0));
    // JSON counts the same.
    let json = json!({"identifier": "ada", "limit": 1, "duration": 3_600_000});
    assert_eq!(limit(&running, json).await["success"], false);
    let wrong = LimitRequest {
        duration_ms: 0,
        ..own
    };
    let refused = client.limit(wrong).await.unwrap_err();
    assert_eq!(refused.code(), Code::InvalidArgument);
    assert!(refused.message().starts_with("duration"), "{refused}");
    running.stop().await;
}

#[tokio::test]
async fn entries_are_a_descriptor() {
    let running = start(RULES).await;
    let check = async |body: Value| running.post("/v1/check", &body).await;
    let (_, first) =
        check(json!({"domain": "d", "entries": {"identifier": "ada"}, "hits": 2})).await;
    assert_eq!(
        (&first["decision"], &first["remaining"]),
        (&json!("allow"), &json!(0))
    );
    let descriptors = json!([{"entries": [{"key": "identifier", "value": "ada"}]}]);
    let (_, second) = check(json!({"domain": "d", "descriptors": descriptors})).await;
    assert_eq!(second["decision"], "deny");
    for (field, body) in [
        ("descriptors", json!({"domain": "d"})),
        (
            "hits",
            json!({"domain": "d", "descriptors": descriptors, "hits": 2}),
        ),
        (
            "entries",
            json!({"domain": "d", "descriptors": descriptors, "entries": {"a": "b"}}),
        ),
        ("entries", json!({"domain": "d", "entries": ["a"]})),
        ("entries", json!({"domain": "d", "entries": {"a": 1}})),
        (
            "descriptors[0].entries[0].key",
            json!({"domain": "d", "entries": {"": "b"}}),
        ),
    ] {
        let (status, refused) = check(body).await;
        assert_eq!(
            (status, &refused["field"]),
            (400, &json!(field)),
            "{refused}"
        );
    }
    running.stop().await;
}
