//! Bytes that clients can send: they are limited or denied, and never an error that lets them pass.

use http_body_util::{BodyExt, Full};
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use prost::Message;
use ratekeeper_limiter::{ENTRY_BYTES_MAX, MAX_HITS};
use ratekeeper_proto::envoy::service::ratelimit::v3::rate_limit_response::Code;
use ratekeeper_proto::envoy::service::ratelimit::v3::{RateLimitRequest, RateLimitResponse};
use ratekeeper_proto::ratekeeper::v1;
use ratekeeper_proto::ratekeeper::v1::rate_limiter_service_client::RateLimiterServiceClient;
use ratekeeper_server::{OnUnreadable, ServerConfig};
use serde_json::json;

use crate::support::{RULES, Running, descriptor, envoy, raw, request, start, start_with};

const RLS: &str = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";
const CHECK: &str = "/ratekeeper.v1.RateLimiterService/Check";

/// A message of both protocols: the domain `d`, and a descriptor with `user` for each value.
fn message(values: &[&[u8]]) -> Vec<u8> {
    let field = |number: u8, bytes: &[u8]| {
        let mut out = vec![number << 3 | 2];
        prost::encoding::encode_varint(bytes.len() as u64, &mut out);
        [&*out, bytes].concat()
    };
    let descriptor = |value: &&[u8]| {
        let entry = [field(1, b"user"), field(2, value)].concat();
        field(2, &field(1, &entry))
    };
    let descriptors = values.iter().flat_map(descriptor);
    field(1, b"d").into_iter().chain(descriptors).collect()
}

/// Sends bytes as a gRPC message; answers the status, and the answer's message.
async fn send(running: &Running, path: &str, message: &[u8]) -> (String, Vec<u8>) {
    let length = u32::try_from(message.len()).unwrap().to_be_bytes();
    let body = [&[0], &length[..], message].concat();
    let client: Client<_, Full<bytes::Bytes>> = Client::builder(TokioExecutor::new())
        .http2_only(true)
        .build_http();
    let request = ::http::Request::post(format!("http://{}{path}", running.addresses.grpc))
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .body(Full::new(body.into()))
        .unwrap();
    let (head, body) = client.request(request).await.unwrap().into_parts();
    let body = body.collect().await.unwrap();
    let trailers = body.trailers().cloned().unwrap_or_default();
    let status = head
        .headers
        .get("grpc-status")
        .or_else(|| trailers.get("grpc-status"));
    let status = status.unwrap().to_str().unwrap().to_owned();
    let bytes = body.to_bytes();
    (status, bytes.get(5..).unwrap_or_default().to_vec())
}

async fn ask(running: &Running, message: &[u8]) -> RateLimitResponse {
    let (status, answer) = send(running, RLS, message).await;
    assert_eq!(status, "0");
    RateLimitResponse::decode(&*answer).unwrap()
}

async fn counted(running: &Running, protocol: &str, reason: &str) -> f64 {
    let series = format!(
        "ratelimit_unreadable_requests_total{{protocol=\"{protocol}\",reason=\"{reason}\"}}"
    );
    running.metric(&series).await
}

#[tokio::test]
async fn values_that_are_no_text_are_limited_and_told_apart() {
    let running = start(RULES).await;
    for value in [&b"\xff"[..], b"\xfe", b"a\xff", b"\xf0\x9f\xa6"] {
        for left in [2, 1, 0] {
            let answer = ask(&running, &message(&[value])).await;
            assert_eq!(answer.statuses[0].limit_remaining, left, "{value:x?}");
        }
        let answer = ask(&running, &message(&[value])).await;
        assert_eq!(answer.overall_code(), Code::OverLimit, "{value:x?}");
    }
    // The text by which such a byte is counted is another value.
    let text = request("d", &[("user", "\u{fdd0}ff")]).encode_to_vec();
    assert_eq!(ask(&running, &text).await.overall_code(), Code::Ok);
    assert_eq!(counted(&running, "rls", "malformed").await, 0.0);
    running.stop().await;
}

#[tokio::test]
async fn the_same_bytes_are_the_same_value_at_every_edge() {
    let running = start(RULES).await;
    assert_eq!(
        ask(&running, &message(&[b"\xed\xa0\x80"]))
            .await
            .overall_code(),
        Code::Ok
    );
    let (status, answer) = send(&running, CHECK, &message(&[b"\xed\xa0\x80"])).await;
    assert_eq!(status, "0");
    let answer = v1::CheckResponse::decode(&*answer).unwrap();
    assert_eq!(answer.limit.unwrap().remaining, 1);
    // JSON's half of a surrogate pair is those three bytes; other bytes stand there as they are.
    let check = |value: &[u8]| {
        let head = br#"{"domain":"d","descriptors":[{"entries":[{"key":"user","value":""#;
        [&head[..], value, br#""}]}]}"#].concat()
    };
    let post = async |value: &[u8]| {
        let body = check(value);
        let head = format!(
            "POST /v1/check HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n\
             connection: close\r\ncontent-length: {}\r\n\r\n",
            body.len()
        );
        let answer = raw(running.addresses.http, &[head.as_bytes(), &body].concat()).await;
        let (_, body) = answer.split_once("\r\n\r\n").unwrap();
        let body: serde_json::Value = serde_json::from_str(body).unwrap();
        body
    };
    assert_eq!(post(br"\ud800").await["remaining"], 0);
    assert_eq!(post(b"\xed\xa0\x80").await["decision"], "deny");
    assert_eq!(post(b"\xff").await["remaining"], 2);
    assert_eq!(post(br"\ufdd0ff").await["remaining"], 2);
    running.stop().await;
}

#[tokio::test]
async fn long_values_in_many_descriptors_are_limited() {
    let running = start(RULES).await;
    let long = [b'k'; 34_000];
    let long = message(&[&long, &long, &long]);
    assert_eq!(ask(&running, &long).await.overall_code(), Code::Ok);
    assert_eq!(ask(&running, &long).await.overall_code(), Code::OverLimit);
    let longest = vec![b'k'; ENTRY_BYTES_MAX];
    let longest = message(&[&longest[..]; 60]);
    assert_eq!(
        ask(&running, &longest).await.overall_code(),
        Code::OverLimit
    );
    let (status, answer) = send(&running, CHECK, &longest).await;
    assert_eq!(status, "0");
    let answer = v1::CheckResponse::decode(&*answer).unwrap();
    assert_eq!(
        (answer.decision(), &*answer.unreadable),
        (v1::Decision::Deny, "")
    );
    assert_eq!(counted(&running, "rls", "too_large").await, 0.0);
    running.stop().await;
}

/// Messages that cannot be read: what they are, and the reason in the metric.
fn unreadable() -> Vec<(&'static str, Vec<u8>)> {
    let mut costly = request("d", &[("user", "a"), ("user", "b")]);
    costly.descriptors[1].hits_addend = Some(MAX_HITS.unsigned_abs() + 1);
    let mut entries = request("d", &[]);
    entries.descriptors.push(descriptor(&[("user", "a"); 33]));
    let many = RateLimitRequest {
        domain: "d".to_owned(),
        descriptors: vec![Default::default(); 40_000],
        hits_addend: 0,
    };
    vec![
        ("malformed", b"\x08\x01".to_vec()),
        ("malformed", b"\x0a\x01\xff".to_vec()),
        ("malformed", b"\x12\x02\x0a\x09".to_vec()),
        ("malformed", many.encode_to_vec()),
        ("too_large", message(&[&vec![b'k'; 5 << 20]])),
        (
            "out_of_bounds",
            message(&[&vec![b'k'; ENTRY_BYTES_MAX + 1]]),
        ),
        ("out_of_bounds", message(&[&vec![0xff; ENTRY_BYTES_MAX]])),
        ("out_of_bounds", costly.encode_to_vec()),
        ("out_of_bounds", entries.encode_to_vec()),
        (
            "out_of_bounds",
            request("d", &[("user", "a"); 101]).encode_to_vec(),
        ),
    ]
}

/// Under the envoy profile too, though envoyproxy/ratelimit answers errors.
#[tokio::test]
async fn what_cannot_be_read_is_over_its_limit_and_takes_nothing() {
    for running in [start(RULES).await, start_with(RULES, envoy).await] {
        for (reason, message) in unreadable() {
            let before = counted(&running, "rls", reason).await;
            let answer = ask(&running, &message).await;
            assert_eq!(
                answer.overall_code(),
                Code::OverLimit,
                "{reason} {}",
                message.len()
            );
            assert_eq!(
                counted(&running, "rls", reason).await,
                before + 1.0,
                "{reason}"
            );
        }
        let answer = ask(&running, &message(&[b"a"])).await;
        assert_eq!(answer.statuses[0].limit_remaining, 2);
        // The mistakes of a proxy's configuration are errors.
        for request in [request("", &[("user", "a")]), request("d", &[])] {
            assert_eq!(send(&running, RLS, &request.encode_to_vec()).await.0, "3");
        }
        running.stop().await;
    }
}

#[tokio::test]
async fn the_settings_say_what_becomes_of_the_unreadable() {
    for (on_unreadable, expected) in [
        (OnUnreadable::Allow, Some(Code::Ok)),
        (OnUnreadable::Error, None),
    ] {
        let running = start_with(RULES, |config| config.on_unreadable = on_unreadable).await;
        for (reason, message) in unreadable() {
            let (status, answer) = send(&running, RLS, &message).await;
            let found = (status == "0")
                .then(|| RateLimitResponse::decode(&*answer).unwrap().overall_code());
            assert_eq!(found, expected, "{reason} {}", message.len());
            assert!(found.is_some() || status == "3", "{status}");
        }
        running.stop().await;
    }
}

#[tokio::test]
async fn json_denies_what_it_cannot_read_and_explains_what_its_sender_got_wrong() {
    let running = start_with(RULES, |config| config.bounds.body_bytes_max = 200_000).await;
    let of = |value: &str| json!({"domain": "d", "descriptors": [{"entries": [{"key": "user", "value": value}]}]});
    let long = of(&"k".repeat(ENTRY_BYTES_MAX + 1));
    let mut costly = of("a");
    costly["descriptors"][0]["hitsAddend"] = json!(MAX_HITS.unsigned_abs() + 1);
    let larger = of(&"k".repeat(300_000));
    for (body, reason) in [
        (&long, "out_of_bounds"),
        (&costly, "out_of_bounds"),
        (&larger, "too_large"),
    ] {
        let before = counted(&running, "json", reason).await;
        let (status, answer) = running.post("/json", body).await;
        assert_eq!(
            (status, &answer["overallCode"]),
            (429, &json!("OVER_LIMIT")),
            "{reason}"
        );
        assert_eq!(counted(&running, "json", reason).await, before + 1.0);
    }
    let odd = of("?").to_string().replace('?', "@").into_bytes();
    let odd: Vec<u8> = odd
        .into_iter()
        .map(|byte| if byte == b'@' { 0xff } else { byte })
        .collect();
    let head = format!(
        "POST /json HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n\
         connection: close\r\ncontent-length: {}\r\n\r\n",
        odd.len()
    );
    let answer = raw(running.addresses.http, &[head.as_bytes(), &odd].concat()).await;
    assert!(answer.starts_with("HTTP/1.1 429 "), "{answer}");
    assert_eq!(counted(&running, "json", "malformed").await, 1.0);
    for body in ["{", "[]", r#"{"domain": "d"}"#] {
        assert_eq!(running.http("POST", "/json", body).await.0, 400, "{body}");
    }
    running.stop().await;
}

#[tokio::test]
async fn our_own_protocol_denies_them_and_says_why() {
    let running = start(RULES).await;
    let of = |value: &str| json!({"domain": "d", "descriptors": [{"entries": [{"key": "user", "value": value}]}]});
    let long = of(&"k".repeat(ENTRY_BYTES_MAX + 1));
    let mut costly = of("a");
    costly["descriptors"][0]["hits"] = json!(MAX_HITS.unsigned_abs() + 1);
    for path in ["/v1/check", "/v1/peek", "/v1/acquire"] {
        let (status, answer) = running.post(path, &long).await;
        assert_eq!(
            (status, &answer["decision"]),
            (200, &json!("deny")),
            "{path} {answer}"
        );
        assert_eq!(
            answer["unreadable"], "descriptors[0].entries[0].value: at most 65536 bytes",
            "{path}"
        );
    }
    assert_eq!(running.post("/v1/check?status=true", &costly).await.0, 429);
    // One of a batch does not keep the others from their decisions.
    let (status, answer) = running
        .post("/v1/checks", &json!({"checks": [of("a"), long, of("a")]}))
        .await;
    let results = answer["results"].as_array().unwrap();
    let decisions = results
        .iter()
        .map(|result| result["decision"].as_str().unwrap());
    let decisions: Vec<_> = decisions.collect();
    assert_eq!((status, decisions), (200, vec!["allow", "deny", "allow"]));
    assert_eq!(results[2]["remaining"], 1);
    assert_eq!(counted(&running, "v1", "out_of_bounds").await, 5.0);
    // Over gRPC, too; but what only the calling program can get wrong is its error.
    let mut client =
        RateLimiterServiceClient::connect(format!("http://{}", running.addresses.grpc))
            .await
            .unwrap();
    let check = v1::CheckRequest::decode(&*message(&[&vec![b'k'; ENTRY_BYTES_MAX + 1]])).unwrap();
    let answer = client.check(check).await.unwrap().into_inner();
    assert_eq!(answer.decision(), v1::Decision::Deny);
    assert!(answer.unreadable.contains("65536"), "{}", answer.unreadable);
    for (reason, message) in [
        ("malformed", b"\x08\x01".to_vec()),
        ("too_large", vec![0; (4 << 20) + 1]),
    ] {
        assert_eq!(send(&running, CHECK, &message).await.0, "3");
        assert_eq!(counted(&running, "v1", reason).await, 1.0);
    }
    running.stop().await;
}

/// No proxy takes a 400 for a permission.
#[tokio::test]
async fn forward_auth_refuses_and_counts_what_it_cannot_read() {
    let rules = "domain: d\ndescriptors: [{key: api_key, rate_limit: {unit: year, requests_per_unit: 3}}]\n";
    let running = start(rules).await;
    let head =
        b"GET /v1/auth HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\nx-api-key: \xff\r\n\r\n";
    let answer = raw(running.addresses.http, head).await;
    assert!(answer.starts_with("HTTP/1.1 400 "), "{answer}");
    assert_eq!(counted(&running, "auth", "malformed").await, 1.0);
    running.stop().await;
}

/// Long messages that are being read share one room; short ones need none.
#[tokio::test]
async fn there_is_room_for_so_many_bytes_of_long_messages() {
    let small = |config: &mut ServerConfig| config.bounds.long_messages_bytes_max = 90 << 10;
    let running = start_with(RULES, small).await;
    let long = [b'k'; 34_000];
    let fits = message(&[&long, &long]);
    let long = message(&[&long, &long, &long]);
    for _ in 0..3 {
        assert_eq!(ask(&running, &long).await.overall_code(), Code::OverLimit);
    }
    assert_eq!(counted(&running, "rls", "too_large").await, 3.0);
    // What was refused has taken nothing, neither hits nor room.
    assert_eq!(ask(&running, &fits).await.statuses[1].limit_remaining, 1);
    let short = message(&[&[b's'; 65_000]]);
    assert_eq!(ask(&running, &short).await.overall_code(), Code::Ok);
    let body = json!({"checks": vec![json!({"domain": "d", "descriptors": [{"entries": [
        {"key": "other", "value": "x".repeat(1_000)}]}]}); 200]});
    let (status, answer) = running.post("/v1/checks", &body).await;
    assert_eq!(
        (status, answer["code"].as_str()),
        (503, Some("UNAVAILABLE"))
    );
    running.stop().await;
}
