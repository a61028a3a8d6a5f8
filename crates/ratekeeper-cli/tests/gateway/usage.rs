//! `usage:`: responses tell what they cost, and budgets are charged when they end.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener};
use std::sync::mpsc::{Sender, channel};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::server::conn::http2::Builder;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use ratekeeper_testkit::assert_contains;
use ratekeeper_testkit::http1::connect;
use ratekeeper_testkit::process::{eventually, output_of, system};
use ratekeeper_testkit::redis::Server;

use crate::support::{Act, Answer, Gateway, Upstream, deaf_port, ok};

/// A thousand tokens for each user, and a limit of requests that is never reached.
const RULES: &str = "
domain: llm
usage: tokens
descriptors:
  - key: user
    rate_limit:
      - { name: tokens, window: 10000d, limit: 1000, post_paid: true }
      - { name: requests, window: 10001d, limit: 1000000 }
";

const SETTINGS: &str = "
auth:
  descriptors: [ [ { key: user, from: header:x-user } ] ]
";

const PROMPT: &str = r#"{"model":"small","messages":[]}"#;

fn gateway(upstream: &str, args: &[&str]) -> Gateway {
    let mut all = vec!["--upstream", upstream, "--access-log", "access.log"];
    all.extend(args);
    Gateway::start_with(RULES, SETTINGS, &all)
}

fn post(user: &str) -> String {
    let length = PROMPT.len();
    format!(
        "POST /v1/chat/completions HTTP/1.1\r\nHost: a\r\nX-User: {user}\r\nAccept-Encoding: gzip\r\n\
         Content-Type: application/json\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{PROMPT}"
    )
}

fn ask(gateway: &Gateway, user: &str) -> Answer {
    Answer::read(&gateway.say(&post(user)))
}

/// Tokens that are left to a user, told by the headers of a request that costs none.
fn left(gateway: &Gateway, user: &str) -> u64 {
    let answer = gateway.get("/v1/models", &[&format!("X-User: {user}")]);
    let told = answer.header("x-ratelimit-remaining").expect("it is told");
    told.parse().expect("it is a number")
}

/// The log's line about a request that was charged by this source.
fn logged(gateway: &Gateway, from: &str) -> serde_json::Value {
    let file = gateway.folder().join("access.log");
    let mut found = None;
    eventually("the request is logged", || {
        let text = std::fs::read_to_string(&file).unwrap_or_default();
        let mut lines = text
            .lines()
            .filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok());
        found = lines.find(|line| line["usage_from"] == from);
        found.is_some()
    });
    found.expect("it was found")
}

#[test]
fn tokens_of_responses_are_charged_to_their_budget() {
    let upstream = Upstream::start(|asked| match asked.head.starts_with("POST") {
        true => ok(
            r#"{"choices":[],"usage":{"prompt_tokens":380,"completion_tokens":20,"total_tokens":400}}"#,
        ),
        false => ok(r#"{"data":[{"id":"small"}]}"#),
    });
    let gateway = gateway(&upstream.url(), &[]);
    gateway.tells(
        "/metrics",
        r#"ratelimit_usage_responses_total{from="response"} 0"#,
    );
    for tokens in [1_000, 600, 200] {
        assert_eq!(left(&gateway, "ada"), tokens);
        assert_eq!(ask(&gateway, "ada").status, 200);
    }
    let before = upstream.asked().len();
    let denied = ask(&gateway, "ada");
    assert_eq!(denied.status, 429);
    assert!(denied.body.contains("RATE_LIMITED"), "{denied:?}");
    assert_eq!(upstream.asked().len(), before, "the model is not asked");
    assert_eq!(left(&gateway, "bob"), 1_000);
    let asked = upstream.asked();
    let prompt = asked.iter().find(|asked| asked.head.starts_with("POST"));
    let encoding = prompt.and_then(|asked| asked.header("accept-encoding"));
    assert_eq!(
        encoding,
        Some("identity"),
        "what is compressed cannot be read"
    );
    gateway.tells(
        "/metrics",
        r#"ratelimit_usage_responses_total{from="response"} 3"#,
    );
    gateway.tells(
        "/metrics",
        r#"ratelimit_usage_hits_total{from="response"} 1200"#,
    );
    let line = logged(&gateway, "response");
    assert_eq!(line["usage"], 400, "{line}");
    assert_eq!(line["input_tokens"], 380, "{line}");
    assert_eq!(line["output_tokens"], 20);
    // A list of models costs nothing.
    let line = logged(&gateway, "nothing");
    assert_eq!(line["usage"], 0);
    assert_eq!(line["path"], "/v1/models");
}

#[test]
fn a_stored_answer_costs_its_tokens_once() {
    let stored =
        r#"{"id":"resp_1","status":"completed","usage":{"input_tokens":300,"output_tokens":200}}"#;
    let upstream = Upstream::start(move |_| ok(stored));
    let gateway = gateway(&upstream.url(), &[]);
    assert_eq!(ask(&gateway, "ada").status, 200);
    gateway.tells(
        "/metrics",
        r#"ratelimit_usage_hits_total{from="response"} 500"#,
    );
    for _ in 0..3 {
        assert_eq!(left(&gateway, "ada"), 500);
    }
    gateway.tells(
        "/metrics",
        r#"ratelimit_usage_responses_total{from="nothing"} 3"#,
    );
    assert_eq!(left(&gateway, "ada"), 500);
}

#[test]
fn an_upgraded_connection_costs_its_estimate_when_it_begins() {
    let upstream = Upstream::start(|_| {
        Act::Echo(
            "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n"
                .to_owned(),
        )
    });
    let usage = "usage: { tokens: { input: 1 }, estimate: 300, reserve: 300 }";
    let rules = RULES.replace("usage: tokens", usage);
    let gateway = Gateway::start_with(&rules, SETTINGS, &["--upstream", &upstream.url()]);
    let _open = gateway.open(
        "GET /v1/realtime HTTP/1.1\r\nHost: a\r\nX-User: ada\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n",
    );
    gateway.tells(
        "/metrics",
        r#"ratelimit_usage_hits_total{from="estimate"} 300"#,
    );
}

#[test]
fn streams_tell_it_in_their_last_event() {
    let upstream = Upstream::start(|_| {
        let chunk = |data: &str| {
            let event = format!("data: {data}\n\n");
            format!("{:x}\r\n{event}\r\n", event.len())
        };
        let events = [
            r#"{"choices":[{"delta":{"content":"hi"}}],"usage":null}"#,
            r#"{"choices":[],"usage":{"prompt_tokens":90,"completion_tokens":10}}"#,
            "[DONE]",
        ];
        let chunks: String = events.into_iter().map(chunk).collect();
        Act::Say(format!(
            "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n{chunks}0\r\n\r\n"
        ))
    });
    let gateway = gateway(&upstream.url(), &[]);
    let answer = ask(&gateway, "ada");
    assert!(answer.body.contains("[DONE]"), "{answer:?}");
    gateway.tells(
        "/metrics",
        r#"ratelimit_usage_hits_total{from="response"} 100"#,
    );
    // The same over HTTP/2.
    let url = gateway.url("/v1/chat/completions");
    let curl = [
        "-sS",
        "--http2-prior-knowledge",
        "-H",
        "x-user: ada",
        "-d",
        PROMPT,
        &url,
    ];
    assert!(output_of(system("curl").args(curl)).contains("[DONE]"));
    gateway.tells(
        "/metrics",
        r#"ratelimit_usage_hits_total{from="response"} 200"#,
    );
}

/// An upstream that speaks HTTP/2 alone and answers with a stream of events, of more than one frame; its URL.
async fn over_http2() -> String {
    let listener = tokio::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await;
    let listener = listener.expect("a port is free");
    let port = listener.local_addr().expect("it has an address").port();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let service = service_fn(|_: http::Request<Incoming>| {
                let delta =
                    "data: {\"choices\":[{\"delta\":{\"content\":\"hi\"}}]}\n\n".repeat(1_000);
                let usage = r#"data: {"usage":{"prompt_tokens":90,"completion_tokens":10}}"#;
                let events = format!("{delta}{usage}\n\ndata: [DONE]\n\n");
                let answer = http::Response::builder().header("content-type", "text/event-stream");
                std::future::ready(answer.body(Full::<Bytes>::from(events)))
            });
            let server = Builder::new(TokioExecutor::new());
            tokio::spawn(server.serve_connection(TokioIo::new(stream), service));
        }
    });
    format!("h2c://127.0.0.1:{port}")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_upstream_of_http2_tells_it_too() {
    let upstream = over_http2().await;
    tokio::task::spawn_blocking(move || {
        let gateway = gateway(&upstream, &[]);
        let answer = ask(&gateway, "ada");
        assert!(answer.body.contains("[DONE]"), "{answer:?}");
        gateway.tells(
            "/metrics",
            r#"ratelimit_usage_hits_total{from="response"} 100"#,
        );
        let logged = logged(&gateway, "response");
        assert_eq!(logged["usage"], 100);
    })
    .await
    .expect("it holds");
}

/// The upstream compresses although it was asked not to.
#[test]
fn what_is_compressed_costs_the_estimate() {
    let body = "x".repeat(400);
    let upstream = Upstream::start(move |_| {
        Act::Say(format!(
            "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Encoding: gzip\r\n\
             Content-Length: {}\r\n\r\n{body}",
            body.len()
        ))
    });
    let gateway = gateway(&upstream.url(), &[]);
    assert_eq!(ask(&gateway, "ada").body.len(), 400, "it passes as it is");
    let line = logged(&gateway, "estimate");
    assert_eq!(line["usage"], PROMPT.len().div_ceil(4) + 100);
}

/// In chunks, no head tells how long the prompt is.
#[test]
fn a_prompt_of_unknown_length_is_estimated_too() {
    let upstream = Upstream::start(|_| ok("{}"));
    let gateway = gateway(&upstream.url(), &[]);
    let chunk = format!("7d0\r\n{}\r\n", "x".repeat(2_000));
    let answer = gateway.say(&format!(
        "POST /v1/chat HTTP/1.1\r\nHost: a\r\nX-User: ada\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n\
         {chunk}{chunk}0\r\n\r\n"
    ));
    assert_eq!(Answer::read(&answer).status, 200, "{answer}");
    let line = logged(&gateway, "estimate");
    assert_eq!(
        line["usage"], 1_001,
        "a quarter of the prompt, and of the answer"
    );
}

/// An upstream of one stream, which sends these events and then waits for its client to go away.
fn endless(events: usize) -> u16 {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port is free");
    let port = listener.local_addr().expect("it has an address").port();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let mut head = [0; 4_096];
            let _ = stream.read(&mut head);
            let event = "data: {\"choices\":[{\"delta\":{\"content\":\"hi\"}}]}\n\n";
            let head = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n";
            let _ = stream.write_all(format!("{head}{}", event.repeat(events)).as_bytes());
            // The gateway closes once its client has gone.
            while matches!(stream.read(&mut [0; 64]), Ok(1..)) {}
        }
    });
    port
}

#[test]
fn a_client_that_leaves_pays_for_what_was_streamed() {
    let port = endless(50);
    let gateway = gateway(&format!("http://127.0.0.1:{port}"), &[]);
    let mut client = connect(gateway.port);
    client.write_all(post("ada").as_bytes()).expect("it reads");
    let mut text = String::new();
    while text.matches("data:").count() < 50 {
        let mut piece = [0; 4_096];
        let count = client.read(&mut piece).expect("it sends");
        text.push_str(&String::from_utf8_lossy(&piece[..count]));
    }
    drop(client);
    gateway.tells(
        "/metrics",
        r#"ratelimit_usage_responses_total{from="partial"} 1"#,
    );
    let line = logged(&gateway, "partial");
    let prompt = PROMPT.len().div_ceil(4) as u64;
    assert_eq!(
        line["usage"],
        prompt + 50,
        "a quarter of the prompt, and a token for each event"
    );
}

#[test]
fn a_request_without_an_answer_costs_nothing() {
    let (_held, port) = deaf_port();
    let gateway = gateway(&format!("http://127.0.0.1:{port}"), &[]);
    assert_eq!(ask(&gateway, "ada").status, 502);
    gateway.tells(
        "/metrics",
        r#"ratelimit_usage_responses_total{from="nothing"} 1"#,
    );
    assert_eq!(left(&gateway, "ada"), 1_000);
}

#[test]
fn hostile_bodies_pass_and_are_bounded() {
    let upstream = Upstream::start(|asked| match asked.head.contains("/pour") {
        true => Act::Pour(64 << 20),
        false => {
            ok(r#"{"usage":{"prompt_tokens":-5,"completion_tokens":"7","total_tokens":1e300}}"#)
        }
    });
    let gateway = gateway(&upstream.url(), &[]);
    let answer = ask(&gateway, "ada");
    assert!(
        answer.body.contains("1e300"),
        "it passes as it is: {answer:?}"
    );
    let line = logged(&gateway, "unreadable");
    let (prompt, body) = (PROMPT.len().div_ceil(4), answer.body.len().div_ceil(4));
    assert_eq!(line["usage"], prompt + body);
    let before = gateway.rss_kib();
    let request = post("bob").replace("/v1/chat/completions", "/pour");
    let poured = gateway.say(&request);
    assert!(poured.len() > 64 << 20, "{}", poured.len());
    assert!(
        gateway.rss_kib() < before + (16 << 10),
        "nothing is kept of it"
    );
    gateway.tells(
        "/metrics",
        r#"ratelimit_usage_responses_total{from="estimate"} 1"#,
    );
}

/// More than a gateway may keep of any response.
const KEPT_KIB_MAX: usize = 16 << 10;

/// A body of one kind, over and over, of so many bytes. It tells no length, and ends with the connection or not at all.
fn pouring(head: &'static str, piece: Vec<u8>, bytes: usize) -> u16 {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port is free");
    let port = listener.local_addr().expect("it has an address").port();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let _ = stream.read(&mut [0; 4_096]);
            let _ = stream.write_all(head.as_bytes());
            for _ in 0..bytes.div_ceil(piece.len()) {
                if stream.write_all(&piece).is_err() {
                    break;
                }
            }
        }
    });
    port
}

/// 300 MiB of zeros in a thousandth of that.
#[test]
fn a_gzip_bomb_passes_as_it_is_and_costs_the_estimate() {
    let mut zip = std::process::Command::new("sh");
    zip.args(["-c", "head -c 314572800 /dev/zero | gzip -9"]);
    let bomb = zip.output().expect("gzip is there").stdout;
    assert!((100_000..1_000_000).contains(&bomb.len()), "{}", bomb.len());
    let head = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Encoding: gzip\r\n\
                Connection: close\r\n\r\n";
    let port = pouring(head, bomb.clone(), bomb.len());
    let gateway = gateway(&format!("http://127.0.0.1:{port}"), &[]);
    let before = gateway.rss_kib();
    let mut client = connect(gateway.port);
    client.write_all(post("ada").as_bytes()).expect("it reads");
    let mut answer = Vec::new();
    client.read_to_end(&mut answer).expect("it ends");
    let found = answer.windows(64).position(|at| *at == bomb[..64]);
    let found = found.expect("the bomb begins somewhere");
    let head = String::from_utf8_lossy(&answer[..found]).to_ascii_lowercase();
    assert_contains(&head, "content-encoding: gzip");
    // In chunks, whose sizes stand between its bytes.
    let passed = answer.len() - found;
    assert!(passed >= bomb.len(), "{passed} of {}", bomb.len());
    assert!(gateway.rss_kib() < before + KEPT_KIB_MAX);
    let line = logged(&gateway, "estimate");
    assert_eq!(
        line["usage"],
        PROMPT.len().div_ceil(4) + bomb.len().div_ceil(4)
    );
    gateway.tells(
        "/metrics",
        r#"ratelimit_usage_responses_total{from="estimate"} 1"#,
    );
}

/// Lists in lists, a number of all digits, and what is no JSON at all: nothing is kept, and who leaves pays for what came.
#[test]
fn bodies_without_an_end_pass_in_bounded_memory() {
    const POURED: usize = 128 << 20;
    let head =
        "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close\r\n\r\n{\"a\":";
    for (byte, of) in [
        (b'[', "lists"),
        (b'{', "objects"),
        (b'7', "digits"),
        (b'x', "no JSON"),
    ] {
        let piece = vec![byte; 64 << 10];
        let port = pouring(head, piece, usize::MAX);
        let gateway = gateway(&format!("http://127.0.0.1:{port}"), &[]);
        let before = gateway.rss_kib();
        let mut client = connect(gateway.port);
        client.write_all(post("ada").as_bytes()).expect("it reads");
        let (mut read, mut buffer) = (0, vec![0; 256 << 10]);
        while read < POURED {
            let count = client.read(&mut buffer).expect("it goes on");
            assert!(count > 0, "{of}: it ended after {read}");
            read += count;
        }
        assert!(gateway.rss_kib() < before + KEPT_KIB_MAX, "{of}");
        drop(client);
        gateway.tells(
            "/metrics",
            r#"ratelimit_usage_responses_total{from="partial"} 1"#,
        );
        let line = logged(&gateway, "partial");
        let charged = line["usage"].as_u64().expect("it is charged");
        // A hit for four bytes, of which some were framing, and some on their way when the client left.
        let hits = (POURED / 4) as u64;
        assert!(charged > hits - hits / 50, "{of}: {line}");
    }
}

/// Chat tells tokens in its body, as the domain says; images tell their number in a header, as their route says.
#[test]
fn a_route_has_its_own_way_to_tell_usage() {
    let upstream = Upstream::start(|asked| {
        // A list of models tells nothing.
        let body = match asked.head.starts_with("POST") {
            true => r#"{"usage":{"prompt_tokens":100,"completion_tokens":100}}"#,
            false => "{}",
        };
        Act::Say(format!(
            "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nX-Images: 3\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        ))
    });
    let url = upstream.url();
    let settings = format!(
        "{SETTINGS}upstreams: {{ all: '{url}' }}\nroutes:\n- {{ path: /, upstream: all }}\n\
         - {{ path: /images, upstream: all, usage: {{ header: x-images, estimate: 1 }} }}\n"
    );
    let gateway = Gateway::start_with(RULES, &settings, &[]);
    let say = |path: &str| {
        let request = post("ada").replace("/v1/chat/completions", path);
        assert_eq!(Answer::read(&gateway.say(&request)).status, 200);
    };
    say("/v1/chat/completions");
    eventually("chat is charged", || left(&gateway, "ada") == 800);
    say("/images/new");
    eventually("images are charged", || left(&gateway, "ada") == 797);
}

/// Two gateways, one budget.
#[test]
fn budgets_in_redis_are_charged_by_all() {
    let redis = Server::start();
    let upstream = Upstream::start(|_| ok(r#"{"usage":{"input_tokens":600}}"#));
    let store = format!("redis://127.0.0.1:{}/", redis.port());
    let args = ["--store", store.as_str()];
    let gateways = [
        gateway(&upstream.url(), &args),
        gateway(&upstream.url(), &args),
    ];
    assert_eq!(ask(&gateways[0], "ada").status, 200);
    gateways[0].tells(
        "/metrics",
        r#"ratelimit_usage_hits_total{from="response"} 600"#,
    );
    assert_eq!(ask(&gateways[1], "ada").status, 200);
    eventually("nothing is left on either", || {
        gateways
            .iter()
            .all(|gateway| ask(gateway, "ada").status == 429)
    });
}

#[test]
fn tokens_are_counted_for_the_bill_by_tenant_and_model() {
    let upstream = Upstream::start(|_| ok(r#"{"usage":{"input_tokens":100,"output_tokens":50}}"#));
    let rules = "
domain: llm
tenant: user
usage: { tokens: { output: 4 }, reserve: 200 }
descriptors:
  - key: user
    descriptors:
      - { key: model, value: small, rate_limit: { window: 10000d, limit: 1000, post_paid: true } }
";
    let settings = "
auth:
  descriptors: [ [ { key: user, from: header:x-user }, { key: model, from: body:/model } ] ]
";
    let args = [
        "--upstream",
        &upstream.url(),
        "--quotas",
        "sqlite://quotas.db",
    ];
    let gateway = Gateway::start_with(rules, settings, &args);
    for _ in 0..2 {
        assert_eq!(ask(&gateway, "ada").status, 200);
    }
    gateway.tells(
        "/metrics",
        r#"ratelimit_usage_hits_total{from="response"} 600"#,
    );
    eventually("the tokens are in the export", || {
        let lines = gateway.told("/admin/v1/export/usage?format=csv");
        let ours = lines
            .lines()
            .filter(|line| line.contains(",llm.user.model_small,"));
        let hits = ours.filter_map(|line| line.trim().rsplit(',').nth(1)?.parse::<u64>().ok());
        hits.sum::<u64>() == 600
    });
}

/// Budgets by the model that the body names.
const MODELS: &str = "
domain: llm
usage: tokens
descriptors:
  - key: model
    rate_limit: { window: 10000d, limit: 100, post_paid: true }
  - { key: model, value: none, rate_limit: { window: 10000d, limit: 0, post_paid: true } }
";

const BY_MODEL: &str = "
denial_body: json-rpc
auth:
  descriptors: [ [ { key: model, from: body:/model, default: none } ] ]
";

fn post_body(kind: &str, body: &str) -> String {
    let length = body.len();
    format!(
        "POST /v1/chat HTTP/1.1\r\nHost: a\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}"
    )
}

#[test]
fn limits_go_by_a_value_in_the_body() {
    let upstream = Upstream::start(|_| ok(r#"{"usage":{"input_tokens":100}}"#));
    let gateway = Gateway::start_with(MODELS, BY_MODEL, &["--upstream", &upstream.url()]);
    let say = |kind: &str, body: &str| Answer::read(&gateway.say(&post_body(kind, body)));
    const JSON: &str = "application/json";
    // The model may come last, behind a long prompt: the upstream gets all of it.
    let prompt = "x".repeat(300 << 10);
    let body = format!(r#"{{"messages":[{{"content":"{prompt}"}}],"model":"small"}}"#);
    assert_eq!(say(JSON, &body).status, 200);
    assert_eq!(upstream.asked()[0].body, body.as_bytes());
    let denied = say(JSON, r#"{"model":"sm\u0061ll","id":"call-7"}"#);
    assert_eq!(denied.status, 429, "small is used up: {denied:?}");
    let body: serde_json::Value = serde_json::from_str(&denied.body).expect("it is JSON");
    assert_eq!(body["jsonrpc"], "2.0");
    assert_eq!(body["id"], "call-7");
    assert_eq!(body["error"]["code"], -32_000);
    assert_eq!(body["error"]["data"]["code"], "RATE_LIMITED");
    assert_eq!(say(JSON, r#"{"id":7,"model":"large"}"#).status, 200);
    assert!(
        say(JSON, r#"{"id":7,"model":"large"}"#)
            .body
            .contains(r#""id":7"#)
    );
    // What names no model is used up from the start.
    for (kind, body) in [
        (JSON, "{}"),
        (JSON, r#"{"model":null}"#),
        ("text/plain", "hello"),
        (
            "text/plain",
            r#"{"model":"new","top_p":NaN,"model":"small"}"#,
        ),
    ] {
        let denied = say(kind, body);
        assert_eq!(denied.status, 429, "{body}");
        assert!(denied.body.contains(r#""id":null"#), "{denied:?}");
    }
    for other in [
        r#""model":"other""#,
        r#""model":null"#,
        r#""Model":"other""#,
    ] {
        let body = format!(r#"{{"model":"new",{other}}}"#);
        assert_eq!(say(JSON, &body).status, 400, "{body}");
    }
    assert_eq!(say(JSON, "\u{feff}{\"model\":\"new\"}").status, 400);
    let late = format!(r#"{{"messages":"{}"#, "x".repeat((4 << 20) + 100));
    assert_eq!(say(JSON, &late).status, 413);
    assert_eq!(upstream.asked().len(), 2);
}

/// Bodies that would be refused pass where the limits are off, or only count.
#[test]
fn limits_that_do_not_enforce_refuse_no_body() {
    let prompt = "x".repeat((4 << 20) + 100);
    for mode in ["off", "shadow"] {
        let upstream = Upstream::start(|_| ok("{}"));
        let url = upstream.url();
        let args = ["--upstream", &url, "--limits", mode];
        let gateway = Gateway::start_with(MODELS, BY_MODEL, &args);
        let bodies = [
            "not json".to_owned(),
            r#"{"model":"a","model":"b"}"#.to_owned(),
            format!(r#"{{"messages":"{prompt}","model":"a"}}"#),
            format!(r#"{{"model":"a","messages":"{prompt}","model":"b"}}"#),
        ];
        for (number, body) in bodies.iter().enumerate() {
            let answer = Answer::read(&gateway.say(&post_body("application/json", body)));
            assert_eq!(answer.status, 200, "{mode} {number}: {answer:?}");
            let passed = &upstream.asked()[number].body;
            assert!(passed == body.as_bytes(), "{mode} {number}: all of it");
        }
    }
}

/// Nothing is decompressed.
#[test]
fn a_compressed_body_that_limits_go_by_is_refused() {
    let upstream = Upstream::start(|_| ok("{}"));
    let gateway = Gateway::start_with(MODELS, BY_MODEL, &["--upstream", &upstream.url()]);
    for (encoding, status) in [("gzip", 415), ("identity", 200)] {
        let post = post_body("application/json", r#"{"model":"small"}"#);
        let head = format!("Content-Encoding: {encoding}\r\nContent-Type:");
        let answer = Answer::read(&gateway.say(&post.replace("Content-Type:", &head)));
        assert_eq!(answer.status, status, "{encoding}: {answer:?}");
    }
}

/// The second value comes when the request is on its way already; or what no JSON is, behind which lenient readers find one.
#[test]
fn a_body_that_contradicts_what_decided_is_broken_off() {
    let upstream = Upstream::start(|_| ok("{}"));
    let gateway = Gateway::start_with(MODELS, BY_MODEL, &["--upstream", &upstream.url()]);
    let prompt = "x".repeat(1 << 20);
    for rest in [r#""model":"large""#, r#""top_p":NaN,"model":"large""#] {
        for kind in ["application/json", "text/plain"] {
            let body = format!(r#"{{"model":"small","prompt":"{prompt}",{rest}}}"#);
            let answer = Answer::read(&gateway.say(&post_body(kind, &body)));
            assert_eq!(answer.status, 400, "{kind} {rest}: {answer:?}");
        }
    }
    assert_eq!(upstream.asked().len(), 0, "it has not got all of any");
}

/// An upstream of streams of a thousand events, each of which is sent when the one before has reached the client.
fn paced(events: usize) -> (u16, Sender<()>) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port is free");
    let port = listener.local_addr().expect("it has an address").port();
    let (next, turn) = channel();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            stream.set_nodelay(true).expect("a socket");
            let _ = stream.read(&mut [0; 4_096]);
            let head =
                "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n";
            let _ = stream.write_all(head.as_bytes());
            for _ in 0..events {
                let _ = stream.write_all(EVENT.as_bytes());
                if turn.recv().is_err() {
                    return;
                }
            }
            let last = "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":9,\"completion_tokens\":1}}\n\n";
            let _ = stream.write_all(last.as_bytes());
        }
    });
    (port, next)
}

const EVENT: &str = "data: {\"id\":\"chatcmpl-123\",\"object\":\"chat.completion.chunk\",\"created\":1694268190,\
                     \"model\":\"gpt-4o-mini\",\"system_fingerprint\":\"fp_44709d6fcb\",\"choices\":[{\"index\":0,\
                     \"delta\":{\"content\":\" word\"},\"logprobs\":null,\"finish_reason\":null}],\"usage\":null}\n\n";

/// Reads one stream, and returns the time until its first byte.
fn read_paced(gateway: &Gateway, next: &Sender<()>, events: usize) -> Duration {
    let mut client = connect(gateway.port);
    client.write_all(post("ada").as_bytes()).expect("it reads");
    let (begun, mut first) = (Instant::now(), None);
    let (mut seen, mut piece) = (0, [0; 8_192]);
    loop {
        let count = client.read(&mut piece).expect("it sends");
        first.get_or_insert_with(|| begun.elapsed());
        if count == 0 {
            return first.unwrap_or_default();
        }
        let came = piece[..count]
            .windows(5)
            .filter(|at| at == b"data:")
            .count();
        (0..came.min(events - seen.min(events))).for_each(|_| next.send(()).expect("it sends"));
        seen += came;
    }
}

/// Prints what reading the usage costs the gateway, in a stream of a thousand events: `cargo test --release -p
/// ratekeeper-cli --test gateway -- --ignored --nocapture reading_usage`.
#[test]
#[ignore = "a measurement"]
fn reading_usage() {
    const EVENTS: usize = 1_000;
    const STREAMS: u32 = 20;
    let rules = RULES.replace("limit: 1000,", "limit: 1000000000,");
    let without = rules.replace("usage: tokens", "");
    let (port, next) = paced(EVENTS);
    let url = format!("http://127.0.0.1:{port}");
    let args = ["--upstream", &url, "--worker-threads", "1"];
    let gateways = [without, rules].map(|rules| Gateway::start_with(&rules, SETTINGS, &args));
    let mut pairs: Vec<f64> = Vec::new();
    let mut firsts = [Duration::ZERO; 2];
    for _ in 0..15 {
        let costs = [0, 1].map(|at| {
            let before = gateways[at].process.processor_time();
            for _ in 0..STREAMS {
                firsts[at] += read_paced(&gateways[at], &next, EVENTS);
            }
            gateways[at].process.processor_time() - before
        });
        pairs.push(costs[1].as_secs_f64() / costs[0].as_secs_f64());
        println!(
            "without {:?}, with {:?}",
            costs[0] / STREAMS,
            costs[1] / STREAMS
        );
    }
    pairs.sort_by(f64::total_cmp);
    let [plain, read] = firsts.map(|sum| sum / (15 * STREAMS));
    println!(
        "processor time with `usage:`: {:.3} of that without (median of 15 pairs)",
        pairs[7]
    );
    println!("first byte after {plain:?} without, {read:?} with");
}
