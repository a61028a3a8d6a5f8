//! `/json`, `/v1/check`, `/v1/checks` and health, as a client sees them.

use crate::certificates::put;
use crate::support::{RULES, Running, start, start_with};
use serde_json::{Value, json};

const ONE: &str = r#"{"domain":"d","descriptors":[{"entries":[{"key":"user","value":"a"}]}]}"#;

fn check(key: &str, value: &str) -> Value {
    json!({"domain": "d", "descriptors": [{"entries": [{"key": key, "value": value}]}]})
}

/// The remaining hits of a user's limit; reading them takes nothing.
async fn remaining(running: &Running, value: &str) -> u64 {
    let mut body = check("user", value);
    body["descriptors"][0]["hits"] = json!(0);
    running.post("/v1/check", &body).await.1["remaining"]
        .as_u64()
        .unwrap()
}

#[tokio::test]
async fn json_answers_as_envoyproxy_ratelimit() {
    let running = start(RULES).await;
    for left in [2, 1, 0] {
        let (status, body) = running.http("POST", "/json", ONE).await;
        assert_eq!(status, 200);
        let mut body: Value = serde_json::from_str(&body).unwrap();
        let reset = body["statuses"][0]["durationUntilReset"].take();
        assert!(reset.as_str().unwrap().ends_with('s'), "{reset}");
        let mut expected = json!({
            "overallCode": "OK",
            "statuses": [{
                "code": "OK",
                "currentLimit": {"name": "per user", "requestsPerUnit": 3, "unit": "YEAR"},
                "durationUntilReset": null,
            }],
        });
        if left > 0 {
            expected["statuses"][0]["limitRemaining"] = json!(left);
        }
        assert_eq!(body, expected);
    }
    // Any method.
    for method in ["POST", "GET", "PUT"] {
        let (status, body) = running.http(method, "/json", ONE).await;
        assert_eq!(status, 429, "{method}");
        assert!(body.contains("\"overallCode\":\"OVER_LIMIT\""), "{body}");
    }
    running.stop().await;
}

#[tokio::test]
async fn json_refuses_with_400_and_names_the_field() {
    let running = start(RULES).await;
    for (body, message) in [
        ("", "the body is empty; send a JSON object\n"),
        ("{}", "rate limit domain must not be empty\n"),
        (
            r#"{"domain":"d"}"#,
            "rate limit descriptor list must not be empty\n",
        ),
        (
            r#"{"domain":"d","descriptors":[{"entries":[{"key":"user","value":"a"}],"hits":1}]}"#,
            "descriptors[0].hits: unknown field `hits`, expected one of `entries`, `limit`, `hitsAddend`, ",
        ),
        (
            r#"{"domain":"d","descriptors":[{"entries":[{"key":"user","value":"a"}]}],"hitsAddend":-1}"#,
            "hitsAddend: expected an integer from 0 to 4294967295",
        ),
        (
            r#"{"domain":"d","descriptors":[{"entries":[{"key":"user","value":"a"}]},{"limit":{"requestsPerUnit":1}}]}"#,
            "descriptors[1].limit.unit: 0 is not a unit; use 1 (SECOND) to 7 (WEEK)\n",
        ),
    ] {
        let (status, told) = running.http("POST", "/json", body).await;
        assert_eq!(status, 400, "{body}");
        assert!(told.starts_with(message), "{body}: {told}");
    }
    assert_eq!(remaining(&running, "a").await, 3);
    running.stop().await;
}

#[tokio::test]
async fn a_check_is_answered_in_plain_numbers() {
    let running = start(RULES).await;
    let (status, mut body) = running.post("/v1/check", &check("user", "a")).await;
    assert_eq!(status, 200);
    let reset = body["reset_after_ms"].take().as_u64().unwrap();
    let full = body["full_after_ms"].take().as_u64().unwrap();
    // A hit leaves a sliding window once it is a year old, or at most a twelfth of one later.
    assert!(0 < reset && reset <= full && full <= 400 * 86_400_000);
    assert_eq!(body["statuses"][0]["reset_after_ms"].take(), reset);
    assert_eq!(body["statuses"][0]["full_after_ms"].take(), full);
    let limit = json!({
        "decision": "allow", "rule": "d.user", "limit": 3, "remaining": 2, "reset_after_ms": null,
        "full_after_ms": null,
    });
    let mut expected = limit.clone();
    expected["degraded"] = json!(false);
    expected["statuses"] = json!([limit]);
    assert_eq!(body, expected);

    for _ in 0..2 {
        running.post("/v1/check", &check("user", "a")).await;
    }
    let (status, body) = running.post("/v1/check", &check("user", "a")).await;
    assert_eq!(
        (status, &body["decision"], &body["remaining"]),
        (200, &json!("deny"), &json!(0))
    );
    assert!(body["retry_after_ms"].as_u64().unwrap() > 0);
    let (status, _) = running
        .post("/v1/check?status=true", &check("user", "a"))
        .await;
    assert_eq!(status, 429);
    // Looking is always allowed, and told when one hit would pass.
    let mut peek = check("user", "a");
    peek["descriptors"][0]["hits"] = json!(0);
    let (_, body) = running.post("/v1/check", &peek).await;
    assert_eq!(body["decision"], "allow");
    assert!(body["retry_after_ms"].as_u64().unwrap() > 0, "{body}");
    // More than the limit ever holds: no wait helps.
    let mut huge = check("user", "b");
    huge["descriptors"][0]["hits"] = json!(4);
    let (_, body) = running.post("/v1/check", &huge).await;
    assert_eq!(
        (&body["decision"], body.get("retry_after_ms")),
        (&json!("deny"), None)
    );
    running.stop().await;
}

#[tokio::test]
async fn where_no_limit_matches_there_is_none_to_tell() {
    let running = start(RULES).await;
    let (status, body) = running.post("/v1/check", &check("nothing", "a")).await;
    let limit = json!({
        "decision": "allow", "rule": null, "limit": null, "remaining": null, "reset_after_ms": null,
        "full_after_ms": null,
    });
    let mut expected = limit.clone();
    expected["degraded"] = json!(false);
    expected["unmatched"] = json!(true);
    expected["statuses"] = json!([limit]);
    assert_eq!((status, body), (200, expected));
    let (_, body) = running.post("/v1/check", &check("free", "a")).await;
    assert_eq!(body["statuses"][0]["unlimited"], true);
    assert_eq!(body["statuses"][0]["rule"], "d.free");
    running.stop().await;
}

#[tokio::test]
async fn checks_are_answered_in_order_each_by_itself() {
    let running = start(RULES).await;
    let checks: Vec<_> = ["a", "a", "b", "a", "a"]
        .iter()
        .map(|value| check("user", value))
        .collect();
    let (status, body) = running.post("/v1/checks", &json!({"checks": checks})).await;
    assert_eq!(status, 200);
    let results = body["results"].as_array().unwrap();
    let seen: Vec<_> = results
        .iter()
        .map(|result| (result["decision"].as_str(), &result["remaining"]))
        .collect();
    assert_eq!(
        seen,
        [
            (Some("allow"), &json!(2)),
            (Some("allow"), &json!(1)),
            (Some("allow"), &json!(2)),
            (Some("allow"), &json!(0)),
            (Some("deny"), &json!(0)),
        ]
    );
    let many: Vec<_> = (0..1_000).map(|_| check("other", "x")).collect();
    let (status, body) = running.post("/v1/checks", &json!({"checks": many})).await;
    assert_eq!(
        (status, body["results"].as_array().unwrap().len()),
        (200, 1_000)
    );
    running.stop().await;
}

/// Status, code, field.
async fn error(running: &Running, path: &str, body: &str) -> (u16, String, String) {
    let (status, body) = running.http("POST", path, body).await;
    let body: Value = serde_json::from_str(&body).unwrap();
    let text = |name: &str| body[name].as_str().unwrap_or_default().to_owned();
    assert!(!text("detail").is_empty(), "{body}");
    (status, text("code"), text("field"))
}

#[tokio::test]
async fn a_check_that_makes_no_sense_is_refused_by_field() {
    let running = start(RULES).await;
    let good = check("user", "a");
    let with = |change: &dyn Fn(&mut Value)| {
        let mut body = good.clone();
        change(&mut body);
        body.to_string()
    };
    let descriptor = |name: &str, value: Value| {
        with(&|body| {
            body["descriptors"][0][name] = value.clone();
        })
    };
    let cases = [
        ("".to_owned(), "body"),
        ("[".to_owned(), "body"),
        ("null".to_owned(), "body"),
        (r#"["d", [{"entries": []}]]"#.to_owned(), "body"),
        (
            descriptor("entries", json!([["user", "a"]])),
            "descriptors[0].entries[0]",
        ),
        (
            with(&|body| body["descriptors"] = json!([[[]]])),
            "descriptors[0]",
        ),
        (format!("{good} x"), "body"),
        ("{}".to_owned(), "domain"),
        (
            r#"{"domain": "d", "descriptors": [{}]}"#.to_owned(),
            "descriptors[0].entries",
        ),
        (with(&|body| body["domain"] = json!("")), "domain"),
        (with(&|body| body["domain"] = json!(7)), "domain"),
        (with(&|body| body["domian"] = json!("d")), "domian"),
        (with(&|body| body["descriptors"] = json!([])), "descriptors"),
        (with(&|body| body["descriptors"] = json!({})), "descriptors"),
        (descriptor("hits", json!(-1)), "descriptors[0].hits"),
        (descriptor("hits", json!(1.5)), "descriptors[0].hits"),
        (descriptor("hits", json!("1")), "descriptors[0].hits"),
        (
            descriptor("entries", json!([{"key": "", "value": ""}])),
            "descriptors[0].entries[0].key",
        ),
        (
            descriptor("entries", json!([{"key": 1}])),
            "descriptors[0].entries[0].key",
        ),
        (
            descriptor("entries", json!([{"keys": ""}])),
            "descriptors[0].entries[0].keys",
        ),
    ];
    for (body, field) in cases {
        let expected = (400, "INVALID_ARGUMENT".to_owned(), field.to_owned());
        assert_eq!(
            error(&running, "/v1/check", &body).await,
            expected,
            "{body}"
        );
    }
    let many = |count: usize, what: &Value| Value::from(vec![what.clone(); count]);
    for (count, status) in [(100, 200), (101, 400)] {
        let mut body = check("other", "a");
        body["descriptors"] = many(count, &body["descriptors"][0]);
        let (found, answer) = running.post("/v1/check", &body).await;
        assert_eq!(found, status, "{answer}");
    }
    for (count, status) in [(32, 200), (33, 400)] {
        let mut body = check("other", "a");
        body["descriptors"][0]["entries"] = many(count, &body["descriptors"][0]["entries"][0]);
        let (found, answer) = running.post("/v1/check", &body).await;
        assert_eq!(found, status, "{answer}");
        if status == 400 {
            assert_eq!(answer["field"], "descriptors[0].entries");
            assert_eq!(answer["detail"], "at most 32 entries");
        }
    }
    // One bad check of many: none of them is decided.
    let checks = json!({"checks": [good, {"domain": "d", "descriptors": []}]}).to_string();
    let expected = (
        400,
        "INVALID_ARGUMENT".to_owned(),
        "checks[1].descriptors".to_owned(),
    );
    assert_eq!(error(&running, "/v1/checks", &checks).await, expected);
    for count in [0, 1_001] {
        let many: Vec<_> = (0..count).map(|_| check("user", "a")).collect();
        let (status, _, field) =
            error(&running, "/v1/checks", &json!({"checks": many}).to_string()).await;
        assert_eq!((status, &*field), (400, "checks"), "{count}");
    }
    for (query, option) in [
        ("status=x", "?status"),
        ("strict=yes", "?strict"),
        ("stat=true", "?stat"),
    ] {
        let path = format!("/v1/check?{query}");
        let (status, _, field) = error(&running, &path, &good.to_string()).await;
        assert_eq!((status, &*field), (400, option));
    }
    assert_eq!(remaining(&running, "a").await, 3);
    running.stop().await;
}

#[tokio::test]
async fn what_is_not_there_or_not_so_is_said_in_json() {
    let running = start_with(RULES, |config| config.bounds.body_bytes_max = 200).await;
    let code = |body: String| {
        let body: Value = serde_json::from_str(&body).unwrap();
        assert_eq!(body["type"], "about:blank", "{body}");
        body["code"].as_str().unwrap().to_owned()
    };
    let (status, body) = running.http("GET", "/nothing", "").await;
    assert_eq!((status, &*code(body)), (404, "NOT_FOUND"));
    let (status, body) = running.http("GET", "/v1/check", "").await;
    assert_eq!((status, &*code(body)), (405, "METHOD_NOT_ALLOWED"));
    let (status, body) = running.http("POST", "/v1/check", &" ".repeat(201)).await;
    assert_eq!((status, &*code(body)), (413, "TOO_LARGE"));
    let to = running.addresses.http;
    let plain = [("content-type", "text/plain")];
    let (status, body) = running.send(to, "POST", "/v1/check", &plain, ONE).await;
    assert_eq!((status, &*code(body)), (415, "UNSUPPORTED_MEDIA_TYPE"));
    // As any web page can have a browser post it, without asking before.
    for headers in [&[][..], &[("origin", "https://other.example")]] {
        let (status, body) = running.send(to, "POST", "/v1/check", headers, ONE).await;
        assert_eq!((status, &*code(body)), (415, "UNSUPPORTED_MEDIA_TYPE"));
    }
    let json = [("content-type", "Application/JSON; charset=utf-8")];
    let (status, _) = running.send(to, "POST", "/v1/check", &json, ONE).await;
    assert_eq!(status, 200);
    running.stop().await;
}

#[tokio::test]
async fn health_says_whether_there_are_rules() {
    let mut running = start("domain: [").await;
    assert_eq!(
        running.http("GET", "/livez", "").await,
        (200, "OK".to_owned())
    );
    assert_eq!(
        running.http("GET", "/healthcheck", "").await,
        (500, String::new())
    );
    let (status, body) = running.http("GET", "/readyz", "").await;
    let body: Value = serde_json::from_str(&body).unwrap();
    assert_eq!(
        (status, &body["state"], &body["ready"]),
        (503, &json!("no rules"), &json!(false))
    );
    assert!(
        body["rules"]["error"]
            .as_str()
            .unwrap()
            .contains("rules.yaml:2:1: "),
        "{body}"
    );
    assert_eq!(running.post("/v1/check", &check("user", "a")).await.0, 503);
    let (status, body) = running.http("POST", "/json", ONE).await;
    assert_eq!(
        (status, &*body),
        (400, "no rate limit configuration loaded\n")
    );

    put(&running.dir.path().join("rules.yaml"), RULES);
    running
        .reloads
        .wait_for(|status| status.is_loaded())
        .await
        .unwrap();
    assert_eq!(
        running.http("GET", "/healthcheck", "").await,
        (200, "OK".to_owned())
    );
    let (status, body) = running.http("GET", "/readyz", "").await;
    let body: Value = serde_json::from_str(&body).unwrap();
    assert_eq!((status, &body["rules"]["error"]), (200, &Value::Null));

    // A bad change leaves it ready, and says what is wrong: to whoever asks, so no more than that.
    let secret = "sk_live_4eC39HqLyjWDarjtT1zdp7dc";
    let typo =
        format!("domain: d\ndescriptors:\n  - {{ key: api_key, value: {secret}, limits: 5 }}\n");
    put(&running.dir.path().join("rules.yaml"), &typo);
    running
        .reloads
        .wait_for(|status| status.error.is_some())
        .await
        .unwrap();
    let (status, body) = running.http("GET", "/readyz", "").await;
    assert_eq!(status, 200);
    assert!(!body.contains(&secret[..12]), "{body}");
    let body: Value = serde_json::from_str(&body).unwrap();
    let error = body["rules"]["error"].as_str().unwrap();
    let message = "rules.yaml:3:62: unknown key 'limits' in a descriptor";
    assert!(error.ends_with(message), "{error}");
    assert_eq!(body["faults"], json!([]));
    assert_eq!(running.post("/v1/check", &check("user", "a")).await.0, 200);
    assert_eq!(
        running
            .metric("ratelimit_config_reload_total{result=\"success\"}")
            .await,
        1.0
    );
    assert_eq!(
        running
            .metric("ratelimit_config_reload_total{result=\"error\"}")
            .await,
        2.0
    );
    running.stop().await;
}

/// The request passed, so it is not told to come back: neither for a limit in quota mode that
/// is over, nor for one that it only looked at.
#[tokio::test]
async fn an_allowance_says_nothing_of_coming_back() {
    let rules = "
domain: d
descriptors:
  - key: q
    quota_mode: true
    rate_limit: { window: 10000d, limit: 1 }
  - key: other
    quota_mode: true
    rate_limit: { window: 10000d, limit: 9 }
";
    let running = start(rules).await;
    running.post("/v1/check", &check("q", "a")).await;
    for hits in [1, 0] {
        let mut body = check("q", "a");
        body["descriptors"][0]["hits"] = json!(hits);
        let other = check("other", "a")["descriptors"][0].take();
        body["descriptors"].as_array_mut().unwrap().push(other);
        let (_, one) = running.post("/v1/check", &body).await;
        let (_, many) = running.post("/v1/checks", &json!({"checks": [body]})).await;
        for answer in [&one, &many["results"][0]] {
            assert_eq!(answer["decision"], "allow", "{answer}");
            assert_eq!(answer.get("retry_after_ms"), None, "{answer}");
            let status = &answer["statuses"][0];
            assert!(status["retry_after_ms"].as_u64().unwrap() > 0, "{answer}");
        }
    }
    running.stop().await;
}

/// A sliding window lets the next hit in later than its window ends.
#[tokio::test]
async fn a_denial_names_one_time_to_come_back() {
    let rules = "
domain: d
descriptors:
  - key: a
    rate_limit: { window: 1h, limit: 3 }
";
    let running = start(rules).await;
    for _ in 0..3 {
        running.post("/v1/check", &check("a", "1")).await;
    }
    let (_, body) = running.post("/v1/check", &check("a", "1")).await;
    assert_eq!(body["decision"], "deny");
    assert!(body["retry_after_ms"].as_u64().unwrap() > 0, "{body}");
    for answer in [&body, &body["statuses"][0]] {
        assert_eq!(answer["reset_after_ms"], answer["retry_after_ms"], "{body}");
    }
    running.stop().await;
}

/// The public answer names no file and no place in one.
#[tokio::test]
async fn where_others_can_ask_readiness_tells_states_alone() {
    let everywhere: std::net::SocketAddr = "0.0.0.0:0".parse().unwrap();
    let running = start_with("domain: [", |config| config.http = Some(everywhere.into())).await;
    let to = (std::net::Ipv4Addr::LOCALHOST, running.addresses.http.port());
    let (status, body) = running.send(to.into(), "GET", "/readyz", &[], "").await;
    assert_eq!(status, 503);
    assert!(
        body.contains("no rules") && body.contains("refused"),
        "{body}"
    );
    assert!(!body.contains("rules.yaml"), "{body}");
    let (status, body) = running.admin("/readyz").await;
    assert_eq!(status, 503);
    assert!(body.contains("rules.yaml:2:1: "), "{body}");
    running.stop().await;
    // On this host alone the same is told as to operators, but not to pages of other names.
    let running = start("domain: [").await;
    let to = running.addresses.http;
    let page = [("host", "evil.example")];
    let (_, body) = running.send(to, "GET", "/readyz", &page, "").await;
    assert!(!body.contains("rules.yaml"), "{body}");
    running.stop().await;
}
