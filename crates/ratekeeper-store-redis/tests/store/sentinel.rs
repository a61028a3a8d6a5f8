//! The store beside a primary that sentinels watch over.

use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use ratekeeper_core::{Algorithm, Limit};
use ratekeeper_store::StoreError;
use ratekeeper_store_redis::script::Clock;
use ratekeeper_store_redis::{Endpoint, RedisStore};
use ratekeeper_testkit::process::{DEADLINE, eventually, free_port};
use ratekeeper_testkit::redis::{PRIMARY, Sentinels, hosts};
use tokio::time::Instant;

use crate::support::{LASTING, decide, home, limit, patient, prefix, step, until};

/// Longer than any test: machines that run tests are slow at times, and this must not be taken for a lost primary.
const NEVER: Duration = Duration::from_secs(3_600);

/// A set that no test changes, shared by all that run at the same time.
fn shared() -> Arc<Sentinels> {
    static SHARED: Mutex<Weak<Sentinels>> = Mutex::new(Weak::new());
    let mut shared = SHARED.lock();
    shared.upgrade().unwrap_or_else(|| {
        let set = Arc::new(Sentinels::with_down_after(NEVER));
        *shared = Arc::downgrade(&set);
        set
    })
}

/// Counters of the set that no other test has, by sentinels at these ports.
pub(crate) fn endpoint(ports: &[u16], name: &str) -> Endpoint {
    let (hosts, prefix) = (hosts(ports), prefix());
    let url = format!("redis+sentinel://{hosts}/{name}?prefix={prefix}");
    Endpoint::parse(&url).expect("a good URL")
}

fn yearly(quota: u64) -> Limit {
    limit(Algorithm::FixedWindow, quota, LASTING)
}

mod conformance {
    use super::*;

    ratekeeper_testkit::conformance!(histories: 30; {
        let set = shared();
        move || {
            let endpoint = endpoint(set.ports(), PRIMARY);
            let store = RedisStore::with_clock(endpoint, patient(), Clock::FromCaller, home());
            eventually("the store knows the primary", || store.shards().len() == 1);
            store
        }
    });
}

/// Some sentinels may be away, and a name may be wrong.
#[tokio::test]
async fn another_sentinel_is_asked_where_one_is_away() {
    let set = shared();
    let ports = [free_port(), set.ports()[1]];
    let store = RedisStore::new(endpoint(&ports, PRIMARY), patient(), home());
    store.greeted().await;
    assert_eq!(store.server_status().error, None);
    let limit = yearly(1);
    for allowed in [true, false] {
        let verdicts = decide(&store, &[step(&limit, 1)]).await;
        assert_eq!(verdicts.expect("it answers").allowed, allowed);
    }
    let store = RedisStore::new(endpoint(set.ports(), "nobody"), patient(), home());
    store.greeted().await;
    let why = store.server_status().error.expect("no primary is known");
    assert!(
        why.contains("knows no primary by the name `nobody`"),
        "{why}"
    );
    assert!(
        store.faults()[0].contains("no sentinel names"),
        "{:?}",
        store.faults()
    );
    let answer = decide(&store, &[step(&limit, 1)]).await;
    assert_eq!(answer, Err(StoreError::Unavailable));
}

/// Asks for `number` until it is answered.
async fn until_answered(store: &RedisStore, limit: &Limit, number: u64) {
    let steps = [step(limit, number)];
    let is_answered = async || decide(store, &steps).await.is_ok();
    until("it is answered", is_answered).await;
}

/// Requests that a demoted primary refuses are decided by the next one, and counted there once.
#[tokio::test]
async fn a_failover_loses_no_answer_and_counts_nothing_twice() {
    let set = Sentinels::with_down_after(NEVER);
    let mut config = patient();
    config.deny_cache_max = Duration::ZERO;
    let store = RedisStore::new(endpoint(set.ports(), PRIMARY), config, home());
    store.greeted().await;
    let (before, limit) = (set.primary(), yearly(1_000_000));
    let mut sentinel = ratekeeper_testkit::redis::Client::connect(set.ports()[0]);
    let told = sentinel.ask(&["SENTINEL", "FAILOVER", PRIMARY]);
    assert!(!told.is_error(), "{told:?}");
    // Each asks once, whatever happens meanwhile.
    let (mut allowed, mut failed) = (0, 0);
    let end = Instant::now() + DEADLINE;
    while store.shards()[0].shard.ends_with(&format!(":{before}")) {
        match decide(&store, &[step(&limit, 1)]).await {
            Ok(verdicts) => allowed += u64::from(verdicts.allowed),
            Err(_) => failed += 1,
        }
        assert!(Instant::now() < end, "the new primary is found");
    }
    until_answered(&store, &limit, 2).await;
    let peek = ratekeeper_store::Step {
        hits: 0,
        ..step(&limit, 1)
    };
    let verdicts = decide(&store, &[peek]).await.expect("it answers");
    let ratekeeper_store::StepOutcome::Counted(outcome) = verdicts.outcomes[0] else {
        panic!("{verdicts:?}");
    };
    let counted = 1_000_000 - outcome.remaining;
    // The old primary's last counts may not have reached the new one.
    assert!(
        counted <= allowed + failed,
        "{counted} of {allowed} and {failed}"
    );
}

/// The primary is killed: failure modes answer until its successor does.
#[tokio::test]
async fn a_primary_that_dies_is_succeeded() {
    let mut set = Sentinels::with_down_after(Duration::from_secs(2));
    let store = RedisStore::new(endpoint(set.ports(), PRIMARY), patient(), home());
    store.greeted().await;
    let limit = yearly(1_000_000);
    until_answered(&store, &limit, 1).await;
    let before = set.primary();
    let server = set
        .servers()
        .iter_mut()
        .find(|server| server.port() == before);
    server.expect("one of them is the primary").process().kill();
    let lost = format!(":{before}");
    until("the new primary is found", async || {
        let _ = decide(&store, &[step(&limit, 2)]).await;
        !store.shards()[0].shard.ends_with(&lost)
    })
    .await;
    until_answered(&store, &limit, 3).await;
    until("nothing is wrong", async || store.faults().is_empty()).await;
    // The failures of the lost one stay counted.
    let former = store.former_shards();
    let lost = former
        .iter()
        .find(|it| it.shard.ends_with(&format!(":{before}")));
    let lost = lost.expect("it is remembered");
    assert!(lost.faults.iter().any(|(_, count)| *count > 0), "{lost:?}");
    assert!(lost.decisions > 0, "{lost:?}");
}
