//! Envoy with examples/ai-gateway: budgets of several nodes, paid when an answer has streamed.

use std::io::{Read, Write};
use std::thread::scope;

use crate::support::{Request, example, start, with_changes};
use ratekeeper_testkit::http1::{Answer, ask, connect, say};
use ratekeeper_testkit::process::{Process, eventually, free_port};
use ratekeeper_testkit::ratekeeper::{Args, Ratekeeper};
use ratekeeper_testkit::recorder::{Act, Asked, Recorder, ok};
use ratekeeper_testkit::redis::Server;
use serde_json::{Value, json};
use tempfile::TempDir;

/// Tokens that a user has for the model `small` in the shorter window.
const TOKENS: u64 = 1000;
/// Millionths of a dollar that a user has.
const MONEY: u64 = 20_000_000;
/// Tokens of the prompt in each answer of the model.
const PROMPT: u64 = 9;
/// The tokens that `ask` costs: the prompt, and one word.
const COST: u64 = PROMPT + 1;
/// The money that `ask` costs: 9 x 0.15 + 0.60, rounded up.
const PRICE: u64 = 2;
/// Streams at once.
const STREAMS: u64 = 64;

struct AiGateway {
    port: u16,
    model: Recorder,
    nodes: Vec<Ratekeeper>,
    _envoy: Process,
    _redis: Server,
    _folder: TempDir,
}

impl AiGateway {
    /// Starts the example with so many nodes on one Redis, and windows that no test outlasts.
    fn start(nodes: usize) -> AiGateway {
        let folder = tempfile::tempdir().expect("a folder can be made");
        let windows = [("window: 1m", "window: 1h".to_owned())];
        let rules = with_changes("ai-gateway/rules.yaml", folder.path(), &windows);
        let rules = rules.to_str().expect("it is text");
        let redis = Server::start();
        let store = format!("redis://127.0.0.1:{}/", redis.port());
        let args = format!("--rules {rules} --store {store} --store-deadline 1s");
        let nodes: Vec<Ratekeeper> = (0..nodes)
            .map(|_| start("ai-gateway", &args.words()))
            .collect();
        for node in &nodes {
            let ready = Request::get(node.port, "/readyz");
            eventually("it counts in Redis", || {
                ready.send().body.contains("\"faults\":[]")
            });
        }
        let model = Recorder::start(answer);
        let (port, envoy) = envoy(&folder, &model, &nodes);
        AiGateway {
            port,
            model,
            nodes,
            _envoy: envoy,
            _redis: redis,
            _folder: folder,
        }
    }

    /// The status of a question that costs [`COST`] tokens and [`PRICE`].
    fn ask(&self, user: &str, model: &str) -> u16 {
        self.say(user, &json!({ "model": model, "answer": "stream" }))
            .status
    }

    fn say(&self, user: &str, body: &Value) -> Answer {
        Answer::read(&say(self.port, request(user, &body.to_string())))
    }

    /// The number of requests that reached the model.
    fn asked(&self) -> u64 {
        self.model.asked().len() as u64
    }

    /// The hits left of a budget, by a look at the last node, which changes nothing.
    fn left(&self, user: &str, key: &str, value: &str) -> u64 {
        let entries = json!([{ "key": "user", "value": user }, { "key": key, "value": value }]);
        let body = json!({ "domain": "llm", "descriptors": [{ "entries": entries, "hits": 0 }] });
        let node = self.nodes.last().expect("there are nodes");
        let kind = "Content-Type: application/json\r\n";
        let told = ask(node.port, "POST", "/v1/check", kind, body.to_string());
        let told = told.expect("it answers in HTTP").body;
        let told: Value = serde_json::from_str(&told).expect("it is JSON");
        assert_eq!(told["degraded"], false, "{told}");
        told["remaining"].as_u64().expect("a limit matches")
    }

    /// Opens 64 streams at once, and waits until those that were let in are paid: their number.
    fn wave(&self, user: &str) -> u64 {
        let before = self.asked();
        let statuses: Vec<u16> = scope(|threads| {
            let asking: Vec<_> = (0..STREAMS)
                .map(|_| threads.spawn(|| self.ask(user, "small")))
                .collect();
            let asking = asking.into_iter();
            asking
                .map(|it| it.join().expect("it is answered"))
                .collect()
        });
        let let_in = statuses.iter().filter(|status| **status == 200).count() as u64;
        let denied = statuses.iter().filter(|status| **status == 429).count() as u64;
        assert_eq!(let_in + denied, STREAMS, "{statuses:?}");
        assert_eq!(
            self.asked() - before,
            let_in,
            "the model is not asked for a request that is denied"
        );
        let owed = MONEY - self.asked() * PRICE;
        eventually("all is paid", || self.left(user, "per", "money") == owed);
        let_in
    }
}

/// Starts Envoy before the model, with the nodes behind it in turn.
fn envoy(folder: &TempDir, model: &Recorder, nodes: &[Ratekeeper]) -> (u16, Process) {
    let (port, admin) = (free_port(), free_port());
    let endpoint = |port| {
        format!(
            "- endpoint: {{ address: {{ socket_address: {{ address: 127.0.0.1, port_value: {port} }} }} }}"
        )
    };
    let endpoints: Vec<String> = nodes.iter().map(|node| endpoint(node.grpc)).collect();
    let script = example("ai-gateway/usage.lua");
    let changes = [
        ("timeout: 0.02s", "timeout: 20s".to_owned()),
        ("port_value: 10000", format!("port_value: {port}")),
        ("port_value: 9901", format!("port_value: {admin}")),
        ("port_value: 9000", format!("port_value: {}", model.port)),
        (
            &endpoint(8081),
            endpoints.join(&format!("\n{}", " ".repeat(14))),
        ),
        (
            "examples/ai-gateway/usage.lua",
            script.to_str().expect("it is text").to_owned(),
        ),
    ];
    let config = with_changes("ai-gateway/envoy.yaml", folder.path(), &changes);
    (port, Process::envoy(&config, &[port]))
}

fn request(user: &str, body: &str) -> String {
    format!(
        "POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nX-User-Id: {user}\r\n\
         Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )
}

/// The model's answer, in the form that a request names.
fn answer(asked: &Asked) -> Act {
    let asked: Value = serde_json::from_slice(&asked.body).unwrap_or_default();
    let usage = format!(
        r#""usage":{{"prompt_tokens":{PROMPT},"completion_tokens":1,"completion_tokens_details":{{"reasoning_tokens":0}}}}"#
    );
    let event = "data: {\"choices\":[{\"delta\":{\"content\":\"word\"}}]}\n\n";
    let stream = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n";
    match asked["answer"].as_str() {
        Some("stream") => {
            // A running total, and the last one.
            let begun = usage.replace(r#""completion_tokens":1"#, r#""completion_tokens":0"#);
            let told = [begun, usage].map(|it| format!("data: {{\"choices\":[],{it}}}\n\n"));
            let body = format!("{event}{}data: [DONE]\n\n", told.concat());
            Act::Say(format!(
                "{stream}Content-Length: {}\r\n\r\n{body}",
                body.len()
            ))
        }
        // A text that claims to be the usage, at the end.
        Some("lie") => ok(&format!(
            r#"{{{usage},"text":"\"prompt_tokens\":0,\"completion_tokens\":0,"}}"#
        )),
        Some("failure") => {
            Act::Say("HTTP/1.1 500 Internal Server Error\r\nContent-Length: 0\r\n\r\n".to_owned())
        }
        // Three words, and never the rest.
        Some("endless") => Act::Echo(format!(
            "{stream}Content-Length: 1000000\r\n\r\n{}",
            event.repeat(3)
        )),
        _ => ok("{}"),
    }
}

#[test]
fn budgets_hold_over_four_nodes_and_64_streams_at_once() {
    let gateway = AiGateway::start(4);
    let left = |user, model| gateway.left(user, "model", model);
    // Nothing is paid when they ask, so all are let in.
    assert_eq!(gateway.wave("ada"), STREAMS);
    assert_eq!(left("ada", "small"), TOKENS - STREAMS * COST);
    // Some of these are let in before the first of them have exhausted the budget.
    gateway.wave("ada");
    assert_eq!(left("ada", "small"), 0);
    let charged = gateway.asked() * COST;
    let bound = TOKENS..TOKENS + STREAMS * COST;
    assert!(bound.contains(&charged), "{charged} of {TOKENS} tokens");
    assert_eq!(gateway.wave("ada"), 0, "nothing is left");
    // Other budgets have not changed.
    assert_eq!(left("ada", "large"), 500);
    assert_eq!(gateway.ask("ada", "large"), 200);
    assert_eq!(gateway.ask("bob", "small"), 200);
    for node in &gateway.nodes {
        let decided = node.metric_or_zero(
            r#"ratelimit_decisions_total{domain="llm",rule="llm.user.per_request",decision="allow"}"#,
        );
        assert!(decided > 0, "each node decides");
    }
}

#[test]
fn an_answer_is_paid_by_what_it_tells_and_a_stream_that_is_left_by_what_was_sent() {
    let gateway = AiGateway::start(1);
    let left = |user| gateway.left(user, "model", "small");
    let ask = |user, answer| gateway.say(user, &json!({ "model": "small", "answer": answer }));
    assert_eq!(ask("ada", "failure").status, 500);
    assert_eq!(ask("ada", "lie").status, 200);
    eventually("it is paid", || left("ada") < TOKENS);
    assert_eq!(left("ada"), TOKENS - COST, "a failure costs nothing");
    // Whoever hangs up pays for the three words that came, and for the prompt at four bytes a token.
    let body = json!({ "model": "small", "answer": "endless" }).to_string();
    let mut stream = connect(gateway.port);
    stream
        .write_all(request("bob", &body).as_bytes())
        .expect("Envoy reads");
    let mut told = String::new();
    while told.matches("word").count() < 3 {
        let mut bytes = [0; 4096];
        let count = stream.read(&mut bytes).expect("Envoy answers");
        assert!(count > 0, "it closed after {told}");
        told += &String::from_utf8_lossy(&bytes[..count]);
    }
    assert_eq!(left("bob"), TOKENS, "nothing is paid before the end");
    drop(stream);
    let cost = body.len().div_ceil(4) as u64 + 3;
    eventually("it is paid", || left("bob") < TOKENS);
    assert_eq!(left("bob"), TOKENS - cost);
}

#[test]
fn without_a_user_or_a_model_nothing_passes() {
    let gateway = AiGateway::start(1);
    let without_key = "POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: 2\r\n\r\n{}";
    assert_eq!(Answer::read(&say(gateway.port, without_key)).status, 401);
    let stranger = gateway.say("ada", &json!({ "answer": "stream" }));
    assert_eq!(stranger.status, 429);
    // Not JSON by its type, so Envoy does not read it.
    let text = request("ada", r#"{"model":"small"}"#).replace("application/json", "text/plain");
    assert_eq!(Answer::read(&say(gateway.port, text)).status, 429);
    assert_eq!(gateway.asked(), 0);
}
