//! The answers to a client's first requests.

use serde_json::{Value, json};

use crate::support::{Running, start};

const RULES: &str = "
domain: shop
descriptors:
  - key: api_key
    rate_limit: { window: 10000d, limit: 3, algorithm: fixed_window }
    descriptors:
      - key: path
        value: /login
        rate_limit: { window: 10000d, limit: 2, algorithm: fixed_window }
  - key: internal
    rate_limit: { unlimited: true }
";

fn check(domain: &str, entries: &[(&str, &str)]) -> Value {
    let entry = |(key, value): &(&str, &str)| json!({ "key": key, "value": value });
    let entries: Vec<_> = entries.iter().map(entry).collect();
    json!({ "domain": domain, "descriptors": [{ "entries": entries }] })
}

async fn refused(running: &Running, body: &str) -> Value {
    let (status, text) = running.http("POST", "/v1/check", body).await;
    assert_eq!(status, 400, "{text}");
    let answer: Value = serde_json::from_str(&text).unwrap();
    answer
}

#[tokio::test]
async fn an_entry_without_a_value_is_refused_by_name() {
    let running = start(RULES).await;
    let body = r#"{"domain":"shop","descriptors":[{"entries":[{"key":"api_key"}]}]}"#;
    let error = refused(&running, body).await;
    assert_eq!(error["field"], "descriptors[0].entries[0].value", "{error}");
    assert!(error["detail"].as_str().unwrap().contains("value"));
    let (_, answer) = running
        .post("/v1/checks", &json!({"checks": [check("shop", &[])]}))
        .await;
    assert_eq!(answer["results"][0]["decision"], "allow", "{answer}");
    // One that is empty and says so stands for itself.
    let (status, answer) = running
        .post("/v1/check", &check("shop", &[("api_key", "")]))
        .await;
    assert_eq!((status, &answer["remaining"]), (200, &json!(2)), "{answer}");
    running.stop().await;
}

#[tokio::test]
async fn where_no_rule_matched_the_answer_says_so_and_names_nothing() {
    let running = start(RULES).await;
    for body in [
        check("shopp", &[("api_key", "a")]),
        check("shop", &[("api_kei", "a")]),
        check("shop", &[("api_key", "a"), ("path", "/logn")]),
    ] {
        let (status, answer) = running.post("/v1/check", &body).await;
        assert_eq!(status, 200, "{answer}");
        assert_eq!(answer["decision"], "allow");
        assert_eq!(answer["unmatched"], true, "{answer}");
        assert!(!answer.to_string().contains("api_key"), "{answer}");
        assert!(!answer.to_string().contains("/login"), "{answer}");
        let (_, many) = running
            .post("/v1/checks", &json!({ "checks": [body] }))
            .await;
        assert_eq!(many["results"][0]["unmatched"], true, "{many}");
    }
    for entries in [&[("api_key", "a")][..], &[("internal", "x")]] {
        let (_, answer) = running.post("/v1/check", &check("shop", entries)).await;
        assert_eq!(answer.get("unmatched"), None, "{answer}");
    }
    running.stop().await;
}

#[tokio::test]
async fn strict_checks_are_refused_with_the_nearest_name() {
    let running = start(RULES).await;
    for (domain, entries, meant) in [
        ("shopp", &[("api_key", "a")][..], "`shop`"),
        ("shop", &[("api_kei", "a")], "`api_key`"),
        ("shop", &[("api_key", "a"), ("path", "/logn")], "`/login`"),
    ] {
        let body = check(domain, entries);
        let (status, answer) = running.post("/v1/check?strict=true", &body).await;
        assert_eq!(status, 400, "{answer}");
        assert_eq!(answer["code"], "UNMATCHED", "{answer}");
        let message = answer["detail"].as_str().unwrap();
        assert!(message.contains(meant), "{message}");
    }
    let mut once = check("shop", &[("api_kei", "a")]);
    once["idempotency_key"] = json!("k");
    let (status, answer) = running.post("/v1/check?strict=true", &once).await;
    let refused = (status, &answer["code"]);
    assert_eq!(refused, (400, &json!("UNMATCHED")), "{answer}");
    // What is refused is not counted, and what matches is answered as ever.
    let mut two = check("shop", &[("api_key", "a")]);
    let stray = json!({ "entries": [{ "key": "nothing like it", "value": "x" }] });
    two["descriptors"].as_array_mut().unwrap().push(stray);
    let (status, answer) = running.post("/v1/check?strict=true", &two).await;
    assert_eq!(status, 400, "{answer}");
    assert_eq!(answer["field"], "descriptors[1]", "{answer}");
    let one = check("shop", &[("api_key", "a")]);
    let (status, answer) = running.post("/v1/check?strict=true", &one).await;
    assert_eq!((status, &answer["remaining"]), (200, &json!(2)), "{answer}");
    running.stop().await;
}

#[tokio::test]
async fn json_that_is_none_is_refused_in_plain_words() {
    let running = start(RULES).await;
    for (body, words) in [
        ("no", "no JSON value begins here"),
        ("", "the body is empty"),
        ("{", "ends before"),
        ("{\"domain\": \"shop\",\n }", "comma before"),
        ("{domain: 1}", "in double quotes (line 1, column"),
        ("{\"domain\" \"shop\"}", "expected a colon"),
        ("{\"domain\": \"a\" \"b\"}", "expected a comma"),
        (
            "{\"domain\":\"shop\",\"descriptors\":[]} x",
            "after its end",
        ),
    ] {
        let error = refused(&running, body).await;
        let message = error["detail"].as_str().unwrap();
        assert!(message.contains(words), "{body}: {message}");
        assert!(!message.contains("ident"), "{message}");
        assert_eq!(error["field"], "body", "{error}");
    }
    running.stop().await;
}

#[tokio::test]
async fn the_root_lists_what_there_is() {
    let running = start(RULES).await;
    let (status, text) = running.http("GET", "/", "").await;
    assert_eq!(status, 200, "{text}");
    for path in [
        "/v1/limit",
        "/v1/check",
        "/v1/auth",
        "/json",
        "/readyz",
        "/openapi.json",
    ] {
        assert!(text.contains(path), "{text}");
    }
    assert!(!text.contains("shop"), "{text}");
    let accept = [("accept", "text/html,application/xhtml+xml")];
    let to = running.addresses.http;
    let (_, page) = running.send(to, "GET", "/", &accept, "").await;
    assert!(page.contains("<a href=\"/openapi.json\">"), "{page}");
    running.stop().await;
}
