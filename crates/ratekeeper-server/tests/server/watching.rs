//! Top keys, the latest denials, and the live stream.

use std::time::Duration;

use ratekeeper_server::{Role, Tokens};
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::support::{PATIENCE, Running, descriptor, request, start, start_with};

const RULES: &str = "
domain: d
evaluation: path
tenant: customer
descriptors:
  - key: customer
    rate_limit: { window: 10000d, limit: 2, algorithm: fixed_window }
    descriptors:
      - key: path
  - key: api_key
    rate_limit: { window: 10000d, limit: 1, algorithm: fixed_window }
";

async fn json(running: &Running, path: &str) -> Value {
    let (status, body) = running.admin(path).await;
    assert_eq!(status, 200, "{path}: {body}");
    serde_json::from_str(&body).expect("it is JSON")
}

/// Waits until the answer at `path` satisfies `is_there`.
async fn eventually(running: &Running, path: &str, is_there: impl Fn(&Value) -> bool) -> Value {
    let look = async {
        loop {
            let answer = json(running, path).await;
            if is_there(&answer) {
                return answer;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let found = timeout(PATIENCE, look).await;
    found.unwrap_or_else(|_| panic!("waited in vain for {path}"))
}

#[tokio::test]
async fn the_top_keys_are_those_that_are_denied_most() {
    let running = start(RULES).await;
    let mut client = running.grpc().await;
    for (customer, path, times) in [("acme", "/a", 5), ("acme", "/b", 4), ("beta", "/a", 4)] {
        for _ in 0..times {
            let entries = [("customer", customer), ("path", path)];
            client
                .should_rate_limit(request("d", &entries))
                .await
                .expect("an answer");
        }
    }
    for _ in 0..3 {
        client
            .should_rate_limit(request("d", &[("api_key", "sk_live_geheim_geheim")]))
            .await
            .expect("an answer");
    }
    let all = |top: &Value| {
        let keys = top["keys"].as_array().expect("a list").iter();
        keys.map(|key| key["count"].as_u64().unwrap_or(0))
            .sum::<u64>()
            == 11
    };
    for window in ["minute", "hour"] {
        let path = format!("/admin/v1/top?window={window}");
        let top = eventually(&running, &path, all).await;
        let keys = top["keys"].as_array().expect("a list");
        assert_eq!(keys.len(), 3, "{top}");
        // By the entries that the rule matched, over all paths.
        assert_eq!(keys[0]["key"], "customer:acme");
        assert_eq!(keys[0]["count"], 7);
        assert_eq!(keys[0]["rule"], "d.customer");
        assert_eq!(keys[0]["error"], 0);
        let since = ratekeeper_rules::time::parse(keys[0]["since"].as_str().expect("a text"));
        let since = since.expect("a time").as_micros() / 1_000_000;
        let age = std::time::UNIX_EPOCH + std::time::Duration::from_secs(since);
        let age = age.elapsed().expect("it is over");
        assert!(age < std::time::Duration::from_secs(600), "{top}");
        assert!(!top.to_string().contains("geheim_"), "{top}");
    }
    let one = json(&running, "/admin/v1/top?rule=d.api_key").await;
    assert_eq!(one["keys"].as_array().expect("a list").len(), 1);
    assert_eq!(one["sampled"], 1);
    let allowed = eventually(&running, "/admin/v1/top?decision=allowed", |top| {
        !top["keys"].as_array().expect("a list").is_empty()
    });
    assert_eq!(allowed.await["sampled"], 64);
    for bad in ["window=day", "limit=0", "limit=101", "what=1"] {
        let (status, body) = running.admin(&format!("/admin/v1/top?{bad}")).await;
        assert_eq!(status, 400, "{bad}: {body}");
    }
    running.stop().await;
}

const ENDPOINTS: &str = "
domain: d
tenant: customer
descriptors:
  - key: customer
    descriptors:
      - key: endpoint
        rate_limit: { window: 10000d, limit: 1, algorithm: fixed_window }
  - key: path
    descriptors:
      - key: customer
        rate_limit: { window: 10000d, limit: 1, algorithm: fixed_window }
  - key: remote_address
    rate_limit: { window: 10000d, limit: 1, algorithm: fixed_window }
";

#[tokio::test]
async fn a_key_says_which_of_its_entries_names_the_tenant() {
    let running = start(ENDPOINTS).await;
    let mut client = running.grpc().await;
    let denied: [&[(&str, &str)]; 5] = [
        // A caller chooses its path, and may write another tenant into it.
        &[("path", "/x:customer:acme"), ("customer", "evil")],
        &[("customer", "urn:acme"), ("endpoint", "GET /a:b")],
        &[("customer", "urn"), ("endpoint", "GET /a:b")],
        &[("remote_address", "2001:db8::1")],
        &[("remote_address", "2001:db8")],
    ];
    for entries in denied.iter().flat_map(|entries| [entries; 2]) {
        let mut question = request("d", &[]);
        question.descriptors.push(descriptor(entries));
        let asked = client.should_rate_limit(question).await;
        asked.expect("an answer");
    }
    let all = |top: &Value| top["keys"].as_array().is_some_and(|keys| keys.len() == 5);
    let top = eventually(&running, "/admin/v1/top", all).await;
    let keys = top["keys"].as_array().expect("a list").iter();
    let mut named: Vec<_> = keys
        .filter_map(|key| Some((key["key"].as_str()?, key["subject"].as_str()?)))
        .collect();
    named.sort_unstable();
    assert_eq!(
        named,
        [
            ("customer:urn:acme:endpoint:GET /a:b", "customer:urn:acme"),
            ("customer:urn:endpoint:GET /a:b", "customer:urn"),
            ("path:/x:customer:acme:customer:evil", "customer:evil"),
            ("remote_address:2001:db8", "remote_address:2001:db8"),
            ("remote_address:2001:db8::1", "remote_address:2001:db8::1"),
        ],
        "{top}"
    );
    running.stop().await;
}

#[tokio::test]
async fn the_groups_with_the_most_denials_can_be_asked_for() {
    let running = start(RULES).await;
    let mut client = running.grpc().await;
    let mut call = async |customer: &str| {
        let asked = client.should_rate_limit(request("d", &[("customer", customer)]));
        asked.await.expect("an answer");
    };
    for _ in 0..50 {
        call("often").await;
    }
    // Until one of them was denied in a later second.
    let is_later = async {
        loop {
            call("late").await;
            let list = json(&running, "/admin/v1/denials?limit=1").await;
            if list["groups"][0]["tenant"] == "late" {
                return;
            }
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    };
    let found = timeout(PATIENCE, is_later).await;
    found.expect("the clock goes on");
    let most = json(&running, "/admin/v1/denials?limit=1&order=count").await;
    assert_eq!(most["groups"][0]["tenant"], "often", "{most}");
    running.stop().await;
}

#[tokio::test]
async fn the_latest_denials_can_be_asked_for_by_key() {
    let running = start(RULES).await;
    let mut client = running.grpc().await;
    for customer in ["acme", "acme", "acme", "beta", "beta", "beta"] {
        client
            .should_rate_limit(request("d", &[("customer", customer)]))
            .await
            .expect("an answer");
    }
    let all = json(&running, "/admin/v1/denials").await;
    let denials = all["denials"].as_array().expect("a list");
    let scopes: Vec<_> = denials
        .iter()
        .map(|denial| denial["scope"].clone())
        .collect();
    assert_eq!(scopes, ["customer:beta", "customer:acme"], "the last first");
    let one = json(&running, "/admin/v1/denials?key=customer:acme").await;
    let one = one["denials"].as_array().expect("a list").clone();
    assert_eq!(one.len(), 1);
    assert_eq!(one[0]["rule"], "d.customer");
    assert_eq!(one[0]["protocol"], "rls");
    running.stop().await;
}

#[tokio::test]
async fn keys_become_labels_only_where_that_is_wanted() {
    for is_wanted in [false, true] {
        let running = start_with(RULES, |config| config.top_denied_metric = is_wanted).await;
        let mut client = running.grpc().await;
        for _ in 0..5 {
            client
                .should_rate_limit(request("d", &[("customer", "acme")]))
                .await
                .expect("an answer");
        }
        eventually(&running, "/admin/v1/top", |top| {
            top["keys"][0]["count"] == 3
        })
        .await;
        let (_, text) = running.admin("/metrics").await;
        let series = r#"ratelimit_top_denied{domain="d",rule="d.customer",key="customer:acme"} 3"#;
        assert_eq!(text.contains(series), is_wanted, "{text}");
        running.stop().await;
    }
}

/// A connection that reads the live stream.
struct Stream(TcpStream, String);

impl Stream {
    async fn open(running: &Running) -> Self {
        let to = running.addresses.admin;
        let mut stream = TcpStream::connect(to).await.expect("it listens");
        let head = format!("GET /admin/v1/live HTTP/1.1\r\nHost: {to}\r\n\r\n");
        stream.write_all(head.as_bytes()).await.expect("it reads");
        Self(stream, String::new())
    }

    /// Reads until `what` was said.
    async fn until(&mut self, what: &str) -> &str {
        let read = async {
            let mut buffer = [0; 4_096];
            while !self.1.contains(what) {
                let count = self.0.read(&mut buffer).await.expect("it answers");
                assert!(count > 0, "it ended without {what:?}:\n{}", self.1);
                self.1.push_str(&String::from_utf8_lossy(&buffer[..count]));
            }
        };
        let read = timeout(PATIENCE, read).await;
        assert!(read.is_ok(), "waited in vain for {what:?}:\n{}", self.1);
        &self.1
    }

    /// Reads until the stream ends: its last chunk is empty. The connection stays.
    async fn ended(mut self) {
        self.until("\r\n0\r\n\r\n").await;
    }
}

#[tokio::test]
async fn the_stream_of_a_client_without_a_token_ends_with_the_first_one() {
    let data = tempfile::tempdir().expect("a folder");
    let folder = data.path().to_path_buf();
    let running = start_with(RULES, |config| config.data_dir = Some(folder)).await;
    let mut stream = Stream::open(&running).await;
    stream.until("event: state").await;
    let made = Tokens::new(data.path()).create("vera", Role::Viewer);
    made.expect("it can be made");
    stream.ended().await;
    running.stop().await;
}

#[tokio::test]
async fn the_stream_tells_each_second_and_ends_with_the_drain() {
    let running = start(RULES).await;
    let mut stream = Stream::open(&running).await;
    let head = stream.until("event: history\ndata: {\"seconds\":[").await;
    assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{head}");
    assert!(
        head.contains("content-type: text/event-stream\r\n"),
        "{head}"
    );
    let mut client = running.grpc().await;
    for _ in 0..5 {
        client
            .should_rate_limit(request("d", &[("customer", "acme")]))
            .await
            .expect("an answer");
    }
    // Either in one second or in two.
    let text = stream
        .until(r#""key":"customer:acme","subject":"customer:acme","count":3,"error":0"#)
        .await;
    for part in [
        r#""state":"serving""#,
        r#""rules_total":2"#,
        r#""error":null"#,
        r#""over_admission_bound":0"#,
        r#""source":""#,
    ] {
        assert!(text.contains(part), "no {part} in:\n{text}");
    }
    let off = Some(ratekeeper_limiter::RuleSwitch::Disabled);
    running.limiter.switch("d.api_key", off).expect("a rule");
    stream.until(r#""switched":{"d.api_key":"disabled"}"#).await;
    let (task, _dir) = running.begin_shutdown();
    stream.until("event: end\ndata: {}\n\n").await;
    let drained = timeout(PATIENCE, task)
        .await
        .expect("it ends")
        .expect("no panic");
    assert_eq!(drained.cut, 0);
}

#[tokio::test]
async fn only_a_few_may_watch_at_a_time() {
    let running = start(RULES).await;
    let mut streams = Vec::new();
    for _ in 0..8 {
        let mut stream = Stream::open(&running).await;
        stream.until("event: history").await;
        streams.push(stream);
    }
    let (status, body) = running.admin("/admin/v1/live").await;
    assert_eq!(status, 503, "{body}");
    drop(streams.pop());
    let again = async {
        loop {
            let mut stream = Stream::open(&running).await;
            if stream.until("\r\n").await.contains("HTTP/1.1 200") {
                return;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    timeout(PATIENCE, again)
        .await
        .expect("a place is free again");
}
