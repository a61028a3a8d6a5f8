//! The responses to clients.

use std::convert::Infallible;

use http::{Request, StatusCode};
use http_body_util::BodyExt;
use ratekeeper_http::{MappedEntry, Mapping, RpcId, ValueSource};
use ratekeeper_tower::{BodyForm, Headers, Hop};
use tower::{Layer, ServiceExt, service_fn};

use crate::support::{full, get, header, layer, of};

const TWO_AN_HOUR: &str = "
domain: d
descriptors:
- key: api_key
  rate_limit: { window: 1h, limit: 2, algorithm: sliding_log, name: hourly }
- key: remote_address
  rate_limit: { window: 1d, limit: 1 }
";

#[tokio::test]
async fn a_request_passes_with_headers_until_its_limit_denies() {
    let called = service_fn(async |_: Request<()>| Ok::<_, Infallible>(full("orders")));
    let limited = layer(TWO_AN_HOUR).layer(called);
    for left in ["1", "0"] {
        let answer = limited.clone().oneshot(of("ada")).await.expect("an answer");
        assert_eq!(answer.status(), StatusCode::OK);
        assert_eq!(header(answer.headers(), "x-ratelimit-limit"), "2");
        assert_eq!(header(answer.headers(), "x-ratelimit-remaining"), left);
        let policy = header(answer.headers(), "ratelimit-policy");
        assert_eq!(policy, r#""hourly";q=2;w=3600"#);
        let body = answer.into_body().collect().await.expect("a body");
        assert_eq!(body.to_bytes(), "orders");
    }
    let denied = limited.clone().oneshot(of("ada")).await.expect("an answer");
    assert_eq!(denied.status(), StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(header(denied.headers(), "content-type"), "application/json");
    let wait = header(denied.headers(), "retry-after").to_owned();
    let body = denied.into_body().collect().await.expect("a body");
    let body = String::from_utf8(body.to_bytes().to_vec()).expect("text");
    let fields = format!(r#""retry_after":{wait},"limit":2,"window":"1h","scope":"api_key:~"#);
    assert!(
        body.starts_with(r#"{"error":{"code":"RATE_LIMITED","#),
        "{body}"
    );
    assert!(body.contains(&fields), "{body}");
    // Another caller has its own limit.
    let other = limited.oneshot(of("bob")).await.expect("an answer");
    assert_eq!(other.status(), StatusCode::OK);
}

#[tokio::test]
async fn a_refusal_has_the_form_that_its_client_reads() {
    let called = service_fn(async |_: Request<()>| Ok::<_, Infallible>(full("")));
    let rules = "
domain: d
descriptors:
- key: api_key
  rate_limit: { window: 1h, limit: 0, name: none }
";
    let headers: Headers = "github, retry-after-date, rule, draft"
        .parse()
        .expect("headers");
    let limited = layer(rules)
        .headers(headers)
        .body_form(BodyForm::Problem)
        .layer(called);
    let denied = limited.clone().oneshot(of("ada")).await.expect("an answer");
    assert_eq!(denied.status(), StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(
        header(denied.headers(), "content-type"),
        "application/problem+json"
    );
    assert_eq!(header(denied.headers(), "x-ratelimit-resource"), "none");
    assert_eq!(header(denied.headers(), "x-ratelimit-used"), "0");
    assert_eq!(header(denied.headers(), "x-ratelimit-rule"), "d.api_key");
    let body = denied
        .into_body()
        .collect()
        .await
        .expect("a body")
        .to_bytes();
    let body = String::from_utf8(body.to_vec()).expect("text");
    assert!(body.contains("http-problem-types#quota-exceeded"), "{body}");
    assert!(body.contains(r#""violated-policies":["none"]"#), "{body}");

    let call = get("ada").header("content-type", "application/grpc");
    let call = call.body(()).expect("a request");
    let refused = limited.oneshot(call).await.expect("an answer");
    assert_eq!(refused.status(), StatusCode::OK);
    assert_eq!(header(refused.headers(), "grpc-status"), "8");
    assert_eq!(
        header(refused.headers(), "content-type"),
        "application/grpc"
    );
}

/// Over HTTP/2 a client writes what it likes into its request.
#[tokio::test]
async fn the_scheme_is_not_the_clients_to_choose() {
    let called = service_fn(async |_: Request<()>| Ok::<_, Infallible>(full("")));
    let rules = "
domain: d
descriptors: [ { key: scheme, value: http, rate_limit: { window: 1h, limit: 0 } } ]
";
    let scheme = MappedEntry {
        key: "scheme".into(),
        source: Some(ValueSource::Scheme),
        default: None,
    };
    let mapping = Mapping::new(vec![vec![scheme]], 64).expect("a mapping");
    let layer = layer(rules).mapping(mapping);
    for (layer, status) in [
        (layer.clone(), StatusCode::TOO_MANY_REQUESTS),
        (layer.encrypted(), StatusCode::OK),
    ] {
        for uri in ["http://d.example/", "https://d.example/", "/"] {
            let request = Request::get(uri).body(()).expect("a request");
            let answer = layer.layer(called).oneshot(request).await;
            assert_eq!(answer.expect("an answer").status(), status, "{uri}");
        }
    }
}

/// The layer reads no bodies: whoever does gives it the id.
#[tokio::test]
async fn a_caller_of_json_rpc_gets_an_error_with_the_id_of_its_call() {
    let called = service_fn(async |_: Request<()>| Ok::<_, Infallible>(full("")));
    let rules = "
domain: d
descriptors:
- key: api_key
  rate_limit: { window: 1h, limit: 0, name: none }
";
    let rules = layer(rules).body_form(BodyForm::JsonRpc);
    assert!(rules.has_rpc_ids());
    let limited = rules.layer(called);
    for (id, told) in [
        (Some("call-7".into()), r#""id":"call-7""#),
        (Some(7.into()), r#""id":7"#),
        (None, r#""id":null"#),
    ] {
        let mut call = get("ada").header("accept", "application/json, text/event-stream");
        if let Some(id) = id {
            call = call.extension(RpcId(id));
        }
        let call = call.body(()).expect("a request");
        let denied = limited.clone().oneshot(call).await.expect("an answer");
        assert_eq!(denied.status(), StatusCode::TOO_MANY_REQUESTS);
        assert_eq!(header(denied.headers(), "content-type"), "application/json");
        let body = denied.into_body().collect().await.expect("a body");
        let body = String::from_utf8(body.to_bytes().to_vec()).expect("text");
        for part in [
            told,
            r#""jsonrpc":"2.0""#,
            r#""error":{"code":-32000"#,
            r#""code":"RATE_LIMITED""#,
        ] {
            assert!(body.contains(part), "no {part} in {body}");
        }
    }
}

#[tokio::test]
async fn a_client_is_known_by_what_trusted_proxies_say() {
    let called = service_fn(async |_: Request<()>| Ok::<_, Infallible>(full("")));
    let limited = layer(TWO_AN_HOUR).layer(called);
    let status = async |peer: &str, forwarded: &str| {
        let request = Request::get("/").header("x-forwarded-for", forwarded);
        let peer = Hop::Address(peer.parse().expect("an address"));
        let request = request.extension(peer).body(()).expect("a request");
        let answer = limited.clone().oneshot(request).await.expect("an answer");
        answer.status().as_u16()
    };
    assert_eq!(status("127.0.0.1", "198.51.100.1").await, 200);
    assert_eq!(status("127.0.0.1", "198.51.100.1").await, 429);
    assert_eq!(status("127.0.0.1", "198.51.100.2").await, 200);
    // An untrusted peer's header is ignored, so all of its supposed clients share a counter.
    assert_eq!(status("192.0.2.1", "198.51.100.3").await, 200);
    assert_eq!(status("192.0.2.1", "198.51.100.4").await, 429);
    // A trusted proxy's header must be valid.
    assert_eq!(status("127.0.0.1", "nobody").await, 400);
}
