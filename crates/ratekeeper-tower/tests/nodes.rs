//! Concurrency limits over several nodes that share a Redis, and the budgets of one.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use ratekeeper_limiter::{BudgetUse, Check, HashKey, Limiter, LimiterOptions, ReceiptMode};
use ratekeeper_rules::{Options, Source, load};
use ratekeeper_store::Answer;
use ratekeeper_store_redis::{Endpoint, RedisConfig, RedisStore};
use ratekeeper_testkit::process::eventually;
use ratekeeper_testkit::redis::{Client, Reply, Server};
use ratekeeper_tower::{Hold, ResponseBody, RulesLayer};
use tokio::runtime::{Builder, Runtime};
use tokio::task::JoinHandle;
use tower::{Layer, ServiceExt, service_fn};

/// The hash key of all nodes.
const HASH_KEY: [u8; 16] = [7; 16];

type Held = Response<ResponseBody<Full<Bytes>, Hold>>;

/// A serving process: a runtime, a connection to Redis, a limiter and a layer of its own.
struct Node {
    runtime: Runtime,
    limiter: Arc<Limiter<RedisStore>>,
    layer: RulesLayer<Arc<Limiter<RedisStore>>>,
}

impl Node {
    fn new(server: &Server, rules: &str) -> Self {
        let mut builder = Builder::new_multi_thread();
        let runtime = builder.worker_threads(1).enable_all().build();
        let runtime = runtime.expect("a runtime can be made");
        let url = format!("redis://127.0.0.1:{}/", server.port());
        let mut config = RedisConfig::default();
        // Slow machines meet this deadline: the test is not about deadlines.
        config.deadline = Duration::from_secs(20);
        config.connect_timeout = Duration::from_secs(20);
        config.hash_key = Some(HashKey::from_bytes(HASH_KEY));
        let endpoint = Endpoint::parse(&url).expect("a good URL");
        let store = RedisStore::new(endpoint, config, runtime.handle().clone());
        runtime.block_on(store.greeted());
        let source = Source {
            name: "rules.yaml".to_owned(),
            text: rules.to_owned(),
        };
        let rules = load(&[source], &Options::default()).expect("the rules are good");
        let mut options = LimiterOptions::default();
        options.hash_key = Some(HashKey::from_bytes(HASH_KEY));
        let limiter = Arc::new(Limiter::new(rules.rules, store, options));
        let layer = RulesLayer::new(Arc::clone(&limiter), "d");
        Self {
            runtime,
            limiter,
            layer,
        }
    }

    /// Starts a request, and does not wait for the response.
    fn begin(&self) -> JoinHandle<StatusCode> {
        let limited = self.layer.layer(service_fn(done));
        let asked = limited.oneshot(request());
        self.runtime.spawn(async {
            let Ok(answer) = asked.await;
            answer.status()
        })
    }

    fn ask(&self) -> Held {
        let limited = self.layer.layer(service_fn(done));
        let limited = limited.oneshot(request());
        let Ok(answer) = self.runtime.block_on(limited);
        answer
    }

    fn status(&self) -> StatusCode {
        self.ask().status()
    }
}

async fn done(_: Request<()>) -> Result<Response<Full<Bytes>>, Infallible> {
    Ok(Response::new(Full::from("done")))
}

fn request() -> Request<()> {
    let request = Request::post("/").header("x-api-key", "ada").body(());
    request.expect("a request")
}

fn rules(limit: u32, timeout: &str) -> String {
    format!(
        "
domain: d
descriptors:
- key: api_key
  concurrency: {{ limit: {limit}, timeout: {timeout} }}
"
    )
}

/// The permits in Redis: the deadlines of those that have not been released.
fn deadlines(redis: &mut Client) -> Vec<String> {
    let keys = texts(&redis.ask(&["KEYS", "*"]));
    let is_set = |key: &&String| redis.ask(&["TYPE", key]).text() == "zset";
    let Some(key) = keys.iter().find(is_set) else {
        return Vec::new();
    };
    let members = texts(&redis.ask(&["ZRANGE", key, "0", "-1", "WITHSCORES"]));
    members.into_iter().skip(1).step_by(2).collect()
}

fn texts(reply: &Reply) -> Vec<String> {
    match reply {
        Reply::Array(all) => all.iter().map(Reply::text).collect(),
        other => panic!("a list is expected: {other:?}"),
    }
}

#[test]
fn all_nodes_together_hold_no_more_than_the_limit() {
    let server = Server::start();
    let nodes = [(); 3].map(|()| Node::new(&server, &rules(4, "1h")));
    let mut held = Vec::new();
    for node in nodes.iter().cycle().take(4) {
        let answer = node.ask();
        assert_eq!(answer.status(), StatusCode::OK);
        held.push(answer);
    }
    for node in &nodes {
        assert_eq!(node.status(), StatusCode::TOO_MANY_REQUESTS);
    }
    // A request that ends on one node makes room on another.
    let _inside = nodes[0].runtime.enter();
    held.remove(0);
    eventually("the place is free", || nodes[2].status() == StatusCode::OK);
}

#[test]
fn a_place_outlives_its_timeout_while_it_is_held_and_not_the_node_that_held_it() {
    let server = Server::start();
    let rules = rules(1, "6s");
    let (holder, other) = (Node::new(&server, &rules), Node::new(&server, &rules));
    let held = holder.ask();
    assert_eq!(held.status(), StatusCode::OK);
    let mut redis = server.client();
    let first = deadlines(&mut redis);
    assert_eq!(first.len(), 1);
    eventually("it is renewed", || deadlines(&mut redis) != first);
    assert_eq!(other.status(), StatusCode::TOO_MANY_REQUESTS);

    // The node is killed: nothing of it runs on, and nothing is released.
    std::mem::forget(held);
    holder.runtime.shutdown_background();
    assert_eq!(deadlines(&mut redis).len(), 1);
    eventually("the place is taken back", || {
        other.status() == StatusCode::OK
    });
}

/// One leaves every hour; five are admitted, including the one that leaves at once.
const HOURLY: &str = "
domain: d
descriptors:
- key: api_key
  rate_limit: { window: 10h, limit: 10, burst: 5, algorithm: leaky_bucket }
";

#[test]
fn the_turn_of_the_last_one_is_given_back_when_its_client_goes() {
    let server = Server::start();
    let mut node = Node::new(&server, HOURLY);
    node.layer = node.layer.wait_max(Duration::from_secs(10 * 3_600));
    let mut redis = server.client();
    // The time at which the bucket will be empty.
    let mut end = || {
        let keys = texts(&redis.ask(&["KEYS", "rk:{*"]));
        assert_eq!(keys.len(), 1, "{keys:?}");
        match redis.ask(&["GET", &keys[0]]) {
            // Behind it is the time of the last charge.
            Reply::Bytes(queue) => queue[..7].to_vec(),
            other => panic!("{other:?} is not a queue"),
        }
    };
    assert_eq!(node.status(), StatusCode::OK);
    let mut ends = vec![end()];
    let mut waiting = Vec::new();
    for number in 1..=3 {
        waiting.push(node.begin());
        eventually("it waits", || node.layer.counts().waiting == number);
        ends.push(end());
    }
    // The one in the middle goes first, and changes nothing for the last one.
    waiting.remove(1).abort();
    eventually("it is gone", || node.layer.counts().waiting == 2);
    waiting.pop().expect("it waits").abort();
    eventually("its turn is free", || end() == ends[2]);
    waiting.pop().expect("it waits").abort();
    eventually("it is gone", || node.layer.counts().waiting == 0);
    // The passed, unused turn is behind the first request.
    assert_eq!(node.layer.counts().denied, 0);
    assert_eq!(end(), ends[2]);
}

/// A call reserves 4,000 tokens of a budget that each node has a counter of.
const RESERVING: &str = "
domain: d
usage: { tokens: {}, reserve: 4000 }
descriptors:
- key: api_key
  rate_limit: { window: 10000d, limit: 100000, post_paid: true, algorithm: fixed_window, consistency: synced }
";

/// A model that uses 500 tokens.
async fn model(_: Request<()>) -> Result<Response<Full<Bytes>>, Infallible> {
    let used = r#"{"usage":{"prompt_tokens":100,"completion_tokens":400}}"#;
    let answer = Response::builder().header("content-type", "application/json");
    Ok(answer.body(Full::from(used)).expect("an answer"))
}

impl Node {
    /// Calls the model, and reads its answer.
    fn call_model(&self) -> StatusCode {
        let asked = self.layer.layer(service_fn(model)).oneshot(request());
        self.runtime.block_on(async {
            let Ok(answer) = asked.await;
            let (head, body) = answer.into_parts();
            body.collect().await.expect("it is whole");
            head.status
        })
    }

    /// The tokens left of the counter that a request sees which makes such use of the budget.
    fn left(&self, budgets: BudgetUse) -> u64 {
        let mut check = Check::new("d").descriptor([("api_key", "ada")]);
        check.budgets = budgets;
        let now = self.limiter.clock().now();
        let admitted = match self.limiter.admit(&check, now, ReceiptMode::Dropped) {
            Answer::Decided(admitted) => admitted,
            Answer::Pending(mut pending) => {
                let answer = std::future::poll_fn(|cx| pending.poll(cx));
                let answer = self.runtime.block_on(answer);
                pending.conclude(&self.limiter, answer)
            }
        };
        let binding = admitted.decision.answers()[0].binding;
        binding.expect("a limit").answered.remaining
    }
}

/// Redis takes what is reserved, so it is Redis that is paid: the node's own counter has nothing to give back.
#[test]
fn what_is_reserved_of_a_synced_budget_is_settled_in_redis() {
    let server = Server::start();
    let node = Node::new(&server, RESERVING);
    for calls in 1..=3 {
        assert_eq!(node.call_model(), StatusCode::OK);
        eventually("500 are charged", || {
            node.left(BudgetUse::Reserve(0)) == 100_000 - 500 * calls
        });
    }
    assert_eq!(node.left(BudgetUse::Look), 100_000);
    let keys = texts(&server.client().ask(&["KEYS", "rk:{*"]));
    assert_eq!(keys.len(), 1, "nothing is synced: {keys:?}");
}
