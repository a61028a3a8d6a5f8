//! The behaviour of the server when something around it, or inside it, fails.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::support::{PATIENCE, RULES, envoy, memory, request, shared, start_on, start_with};
use ratekeeper_core::Timestamp;
use ratekeeper_server::{LimitHeaderNames, PeerLists, ServerConfig, TopAnswer, TopPeers};
use ratekeeper_store::across::CounterSlot;
use ratekeeper_store::{
    Answer, Execution, FullMode, HashKey, MemoryConfig, MemoryStore, Request, StepOutcome, Verdicts,
};
use ratekeeper_stores::{SharedStore, StoreReply};
use serde_json::{Value, json};

/// Panics when it is first maintained.
#[derive(Debug)]
struct Fragile {
    inner: MemoryStore,
    broke: AtomicBool,
    maintained: tokio::sync::watch::Sender<u32>,
}

impl SharedStore for Fragile {
    fn ask(&self, _: CounterSlot, request: &Request<'_>) -> Answer<StoreReply> {
        Answer::Decided(self.inner.decide_now(request))
    }

    fn hash_key(&self) -> Option<HashKey> {
        None
    }

    fn maintain(&self, now: Timestamp) {
        assert!(
            self.broke.swap(true, Ordering::Relaxed),
            "a mistake of ours"
        );
        self.inner.sweep(now, 1);
        self.maintained.send_modify(|count| *count += 1);
    }
}

/// Answering goes on, the task is begun again, and operators are told.
#[tokio::test]
async fn a_maintenance_task_that_panics_is_begun_again_and_told_of() {
    let (maintained, mut times) = tokio::sync::watch::channel(0);
    let store = Fragile {
        inner: memory(),
        broke: AtomicBool::new(false),
        maintained,
    };
    let running = start_on(shared(store), RULES, |_| {}).await;
    let again = times.wait_for(|times| *times > 0);
    tokio::time::timeout(PATIENCE, again)
        .await
        .unwrap()
        .unwrap();
    let (status, body) = running.http("GET", "/readyz", "").await;
    let body: Value = serde_json::from_str(&body).unwrap();
    let told = "upkeep ended early (1 so far) and was restarted: see the log";
    assert_eq!((status, &body["faults"]), (200, &json!([told])));
    for (task, failures) in [("upkeep", 1.0), ("reloading", 0.0)] {
        let series = format!("ratelimit_task_failures_total{{task=\"{task}\"}}");
        assert_eq!(running.metric(&series).await, failures);
    }
    let one = json!({"domain": "d", "descriptors": [{"entries": [{"key": "user", "value": "a"}]}]});
    assert_eq!(running.post("/v1/check", &one).await.0, 200);
    running.stop().await;
}

/// Panics when a list is laid out for the first time.
#[derive(Debug, Default)]
struct FragileBoard(AtomicBool);

impl TopPeers for FragileBoard {
    fn publish<'a>(&'a self, _: &'a str) -> TopAnswer<'a, ()> {
        assert!(self.0.swap(true, Ordering::Relaxed), "a mistake of ours");
        Box::pin(async { Ok(()) })
    }

    fn read(&self) -> TopAnswer<'_, PeerLists> {
        Box::pin(async { Ok(PeerLists::default()) })
    }
}

#[tokio::test]
async fn sharing_the_top_keys_is_begun_again_after_a_panic_and_told_of() {
    let board: Arc<dyn TopPeers> = Arc::new(FragileBoard::default());
    let running = start_with(RULES, |config| config.top_peers = Some(board)).await;
    let told = json!(["top ended early (1 so far) and was restarted: see the log"]);
    let told_of = async {
        while faults(&running).await != told {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let told_of = tokio::time::timeout(PATIENCE, told_of).await;
    told_of.expect("the fault is told");
    let series = "ratelimit_task_failures_total{task=\"top\"}";
    assert_eq!(running.metric(series).await, 1.0);
    running.stop().await;
}

/// Has room for nothing.
#[derive(Debug)]
struct Full;

impl SharedStore for Full {
    fn ask(&self, _: CounterSlot, request: &Request<'_>) -> Answer<StoreReply> {
        let full = |_| StepOutcome::Full(FullMode::Allow);
        Answer::Decided(Verdicts {
            allowed: true,
            outcomes: request.steps.iter().map(full).collect(),
            at: request.now,
            execution: Execution::Now,
        })
    }

    fn hash_key(&self) -> Option<HashKey> {
        None
    }
}

/// That some limit was not counted is told in each way that was asked for, and in no other:
/// headers reach end clients. envoyproxy/ratelimit's metadata has no word for it.
#[tokio::test]
async fn a_degraded_answer_is_marked() {
    type Change = fn(&mut ServerConfig);
    let headers: Change = |config| {
        config.rls.draft_headers = true;
        config.rls.limit_headers = Some(LimitHeaderNames::default());
    };
    let degraded: Change = |config| config.rls.degraded_header = true;
    let metadata: Change = |config| config.rls.dynamic_metadata = true;
    for (change, header, marked) in [
        (headers, false, false),
        (degraded, true, false),
        (metadata, false, true),
    ] {
        for is_ours in [true, false] {
            let running = start_on(shared(Full), RULES, |config| {
                change(config);
                if !is_ours {
                    envoy(config);
                }
            })
            .await;
            let asked = request("d", &[("user", "a")]);
            let response = running.grpc().await.should_rate_limit(asked).await;
            let response = response.unwrap().into_inner();
            let headers = &response.response_headers_to_add;
            let has_header = headers
                .iter()
                .any(|header| (&*header.key, &*header.value) == ("x-ratelimit-degraded", "true"));
            assert_eq!(has_header, header);
            let json = ratekeeper_proto::json::write_response(&response);
            assert_eq!(
                json.contains("\"degraded\":true"),
                marked && is_ours,
                "{json}"
            );
            running.stop().await;
        }
    }
}

/// A rule whose counters all deny has no room for new callers. That is said before, and then its
/// failure mode answers.
#[tokio::test]
async fn counters_that_are_full_of_denials_are_told_and_a_rule_may_deny_then() {
    const SIGN_INS: &str = "
domain: d
descriptors:
  - key: account
    on_store_failure: deny
    rate_limit: { unit: year, requests_per_unit: 1 }
";
    let config = MemoryConfig {
        memory_limit: MemoryConfig::LEAST,
        ..MemoryConfig::default()
    };
    let running = start_on(MemoryStore::new(config).unwrap(), SIGN_INS, |_| {}).await;
    let ask = async |number: u64| {
        let account = number.to_string();
        let check = ratekeeper_limiter::Check::new("d").descriptor([("account", &*account)]);
        running.limiter.check(&check).await.allowed()
    };
    assert_eq!(faults(&running).await, json!([]));
    // Each account is new. Some part of the table is full before the others are.
    let (mut asked, mut denied) = (0, 0);
    while denied < 100 {
        denied = if ask(asked).await { 0 } else { denied + 1 };
        asked += 1;
        assert!(asked < 1_000_000, "it is full some time");
    }
    assert!(running.limiter.store().gauges().refused > 0);
    let told = async {
        loop {
            let faults = faults(&running).await.to_string();
            if faults.contains("the rule `d.account` denies") {
                return;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(PATIENCE, told).await.unwrap();
    assert!(running.metric("ratelimit_store_denying_ratio").await > 0.9);
    running.stop().await;
}

async fn faults(running: &crate::support::Running) -> Value {
    let (_, body) = running.admin("/readyz").await;
    let body: Value = serde_json::from_str(&body).unwrap();
    body["faults"].clone()
}
