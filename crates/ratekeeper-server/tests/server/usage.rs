//! The usage of a tenant's limits.

use serde_json::{Value, json};

use crate::support::{RULES, Running, start};
use crate::switches::admin;

const TENANTS: &str = "
domain: api
evaluation: path
tenant: api_key
plans: [free, pro]
tenants:
  - { tenant: acme, plan: pro }
  - { tenant: own, overrides: [ { descriptor: 'endpoint:POST /orders', window: 24h, limit: 500 } ] }
descriptors:
  - key: api_key
    rate_limit: { window: 24h, limit: 10, algorithm: fixed_window }
    plans: { pro: { window: 24h, limit: 1000, algorithm: fixed_window } }
    descriptors:
      - key: endpoint
        value: POST /orders
        rate_limit:
          - { window: 24h, limit: 20, algorithm: fixed_window }
          - { window: 10h, limit: 5 }
      - key: endpoint
        rate_limit: { window: 24h, limit: 3, algorithm: token_bucket }
  - key: api_key
    value: internal-*
    concurrency: { limit: 2 }
  - key: remote_address
    rate_limit: { window: 24h, limit: 1 }
";

async fn spend(running: &Running, api_key: &str, endpoint: &str) {
    let entries =
        json!([{ "key": "api_key", "value": api_key }, { "key": "endpoint", "value": endpoint }]);
    let check = json!({ "domain": "api", "descriptors": [{ "entries": entries }] });
    let (status, answer) = running.post("/v1/check", &check).await;
    assert_eq!(
        (status, &answer["decision"]),
        (200, &json!("allow")),
        "{answer}"
    );
}

async fn usage(running: &Running, path: &str) -> Value {
    let (status, usage) = admin(running, "GET", &format!("/admin/v1/usage/{path}"), "").await;
    assert_eq!(status, 200, "{usage}");
    usage
}

/// Used, limit and remaining of an entry.
fn numbers(usage: &Value, name: &str) -> [u64; 3] {
    let entry = &usage["usage"][name];
    ["used", "limit", "remaining"].map(|field| {
        entry[field]
            .as_u64()
            .unwrap_or_else(|| panic!("{name} in {usage}"))
    })
}

#[tokio::test]
async fn usage_is_read_from_the_live_counters_and_takes_nothing() {
    let running = start(TENANTS).await;
    for endpoint in ["POST /orders", "POST /orders", "GET /items"] {
        spend(&running, "acme", endpoint).await;
    }
    for _ in 0..2 {
        let usage = usage(&running, "acme?descriptor=endpoint:GET%20%2Fitems").await;
        assert_eq!(
            (&usage["tenant"], &usage["domain"], &usage["plan"]),
            (&json!("acme"), &json!("api"), &json!("pro"))
        );
        assert_eq!(numbers(&usage, "default"), [3, 1_000, 997]);
        assert_eq!(numbers(&usage, "endpoint:POST /orders#1d"), [2, 20, 18]);
        assert_eq!(numbers(&usage, "endpoint:POST /orders#10h"), [2, 5, 3]);
        assert_eq!(numbers(&usage, "endpoint:GET /items"), [1, 3, 2]);
        assert_eq!(usage["dynamic"], json!(["endpoint:*"]));
        let window = &usage["usage"]["default"]["window"];
        assert_eq!(window["length"], "1d");
        assert!(
            window["start"].as_str().unwrap().ends_with("T00:00:00Z"),
            "{window}"
        );
        assert_eq!(&usage["current_window"], window);
        let bucket = &usage["usage"]["endpoint:GET /items"];
        assert_eq!(
            (&bucket["algorithm"], &bucket["window"]),
            (&json!("token_bucket"), &json!({ "length": "1d" }))
        );
    }
    let own = usage(&running, "own").await;
    assert_eq!(own["plan"], "custom", "it has overrides alone: {own}");
    assert_eq!(numbers(&own, "default"), [0, 10, 10]);
    assert_eq!(numbers(&own, "endpoint:POST /orders"), [0, 500, 500]);
    let internal = usage(&running, "internal-7").await;
    assert_eq!(numbers(&internal, "default"), [0, 2, 2]);
    assert_eq!(internal["usage"]["default"]["window"]["length"], "now");
    running.stop().await;
}

const LISTS: &str = "
domain: api
evaluation: path
tenant: api_key
tenants:
  - tenant: own
    overrides:
      - { descriptor: ['zone:a', 'x:y'], window: 24h, limit: 20 }
      - { descriptor: 'api_key:own', window: 24h, limit: 30 }
descriptors:
  - key: api_key
    rate_limit:
      - { window: 24h, limit: 10, algorithm: fixed_window }
      - { window: 24h, limit: 5, algorithm: token_bucket }
      - { unit: day, calendar: Europe/Vienna, limit: 7, algorithm: fixed_window }
      - { window: 10h, limit: 3 }
";

#[tokio::test]
async fn every_limit_of_a_list_is_told_also_those_with_one_window() {
    let running = start(LISTS).await;
    let usage = usage(&running, "acme").await;
    for (name, limit) in [
        ("default#1d:fixed_window", 10),
        ("default#1d:token_bucket", 5),
        ("default#day@Europe/Vienna:fixed_window", 7),
        ("default#10h", 3),
    ] {
        assert_eq!(numbers(&usage, name), [0, limit, limit]);
    }
    running.stop().await;
}

#[tokio::test]
async fn limits_that_a_tenant_has_alone_are_told_wherever_they_are() {
    let running = start(LISTS).await;
    let own = usage(&running, "own").await;
    assert_eq!(numbers(&own, "zone:a,x:y"), [0, 20, 20]);
    assert_eq!(numbers(&own, "api_key:own"), [0, 30, 30]);
    assert_eq!(numbers(&own, "default#10h"), [0, 3, 3]);
    assert_eq!(own["usage"]["default"], Value::Null, "{own}");
    running.stop().await;
}

#[tokio::test]
async fn a_wrong_question_about_usage_names_its_parameter() {
    let running = start(TENANTS).await;
    for (path, field) in [
        ("acme?domain=other", "?domain"),
        ("acme?what=1", "?"),
        ("acme?descriptor=endpoint", "?descriptor[0]"),
        ("acme?descriptor=a:b&descriptor=:b", "?descriptor[1]"),
        ("acme?descriptor=%5B1%5D", "?descriptor"),
        ("acme?descriptor=%5B%5D", "?descriptor[0]"),
        ("acme%FF", "{tenant}"),
    ] {
        let (status, problem) =
            admin(&running, "GET", &format!("/admin/v1/usage/{path}"), "").await;
        assert_eq!(
            (status, &problem["field"]),
            (400, &json!(field)),
            "{path}: {problem}"
        );
    }
    running.stop().await;
    let running = start(RULES).await;
    let (status, problem) = admin(&running, "GET", "/admin/v1/usage/a", "").await;
    assert_eq!(status, 400);
    assert!(
        problem["detail"]
            .as_str()
            .unwrap()
            .starts_with("no domain has `tenant:`"),
        "{problem}"
    );
    running.stop().await;
}

#[tokio::test]
async fn a_wrong_question_for_an_explanation_names_its_parameter() {
    let running = start(RULES).await;
    for (query, field) in [
        ("", "?domain"),
        ("?domain=d", "?entry"),
        ("?domain=d&domain=e&entry=a:b", "?domain"),
        ("?domain=d&entry=a", "?entry"),
        ("?domain=d&entry=:b", "?entry"),
        ("?domain=d&entry=a:b&x=y", "?"),
    ] {
        let (status, problem) =
            admin(&running, "GET", &format!("/admin/v1/explain{query}"), "").await;
        assert_eq!(
            (status, &problem["field"]),
            (400, &json!(field)),
            "{query}: {problem}"
        );
    }
    running.stop().await;
}
