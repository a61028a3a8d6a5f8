//! Leases across failovers: the server that takes over knows of every hit that was admitted from a lease.

use std::time::Duration;

use ratekeeper_core::Algorithm;
use ratekeeper_core::lease::LEASE_MAX;
use ratekeeper_store::{Step, StepOutcome};
use ratekeeper_store_redis::RedisStore;
use ratekeeper_testkit::redis::{Client, Cluster, PRIMARY, Reply, Sentinels, Server};

use super::cases::leased;
use super::{counts, until_leased};
use crate::cluster::{self, step_of};
use crate::sentinel;
use crate::support::{LASTING, decide, home, limit, patient, step, until};

/// The hits that may be admitted altogether.
const LIMIT: u64 = 2_000;

/// Requests while the replicas are cut off.
const CUT_OFF: u64 = 600;

/// Denials in a row after which nothing more is admitted.
const DENIED: u64 = 300;

/// The time that a primary has to be gone before it is missed.
const GONE: Duration = Duration::from_secs(2);

/// The counter, leased for longer than the test lasts: all that is admitted from a lease stays charged.
fn lasting(step: &Step) -> Step {
    Step {
        lease: LEASE_MAX,
        ..leased(step)
    }
}

/// Hits that were admitted.
#[derive(Clone, Copy, Default, Debug)]
struct Admitted {
    from_leases: u64,
    /// Decided in Redis, one by one.
    exactly: u64,
}

impl Admitted {
    /// Asks once. Returns true if the hit was admitted; [`None`] if no answer came.
    async fn ask(&mut self, store: &RedisStore, step: &Step) -> Option<bool> {
        let verdicts = decide(store, &[*step]).await.ok()?;
        match verdicts.outcomes[0] {
            _ if !verdicts.allowed => {}
            StepOutcome::Leased(_) => self.from_leases += 1,
            _ => self.exactly += 1,
        }
        Some(verdicts.allowed)
    }

    /// Asks until nothing more is admitted.
    async fn ask_for_all(&mut self, store: &RedisStore, step: &Step) {
        until("nothing is left", async || {
            let mut denied = 0;
            while denied < DENIED && self.ask(store, step).await == Some(false) {
                denied += 1;
            }
            while self.ask(store, step).await == Some(true) {}
            denied == DENIED
        })
        .await;
    }
}

/// Stops the replicas, and ends their connections to the primary: what it charges from now on they never get.
fn cut_off(primary: &mut Client, replicas: &mut [&mut Server]) {
    // What was charged so far they have.
    let caught_up = primary.ask(&["WAIT", &replicas.len().to_string(), "60000"]);
    assert_eq!(caught_up, Reply::Int(replicas.len() as i64));
    for replica in replicas.iter_mut() {
        replica.process().pause();
    }
    let ended = primary.ask(&["CLIENT", "KILL", "TYPE", "replica"]);
    assert_eq!(ended, Reply::Int(replicas.len() as i64));
}

/// Spends leases while the replicas are cut off; then the primary dies, and one of them takes over. Returns what was
/// admitted before the cut, and while it lasted.
async fn lose(
    store: &RedisStore,
    step: &Step,
    (primary, replicas): (&mut Server, &mut [&mut Server]),
) -> (u64, Admitted) {
    let before = until_leased(store, step).await;
    cut_off(&mut primary.client(), replicas);
    let mut cut = Admitted::default();
    for _ in 0..CUT_OFF {
        let _ = cut.ask(store, step).await;
        // Grants get their turns.
        tokio::time::sleep(Duration::from_micros(500)).await;
    }
    primary.process().kill();
    for replica in replicas.iter_mut() {
        replica.process().resume();
    }
    (before, cut)
}

/// Redis may lose hits that it decided one by one while no replica got them, as with `exact`; but none from a lease.
fn check(before: u64, cut: Admitted, after: Admitted, store: &RedisStore) {
    println!(
        "{before} before, cut off {cut:?}, after {after:?}: {:?}",
        counts(store)
    );
    let all = before + cut.from_leases + cut.exactly + after.from_leases + after.exactly;
    assert!(
        all <= LIMIT + cut.exactly,
        "{all} of {LIMIT}, and {} were not replicated",
        cut.exactly
    );
    assert!(
        cut.exactly > CUT_OFF / 2,
        "they are decided in Redis: {cut:?}"
    );
    assert!(counts(store).burned > 0, "{:?}", counts(store));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sentinel_failover_forgets_nothing_that_was_admitted_from_a_lease() {
    let mut set = Sentinels::with_down_after(GONE);
    let mut config = patient();
    config.deny_cache_max = Duration::ZERO;
    let store = RedisStore::new(sentinel::endpoint(set.ports(), PRIMARY), config, home());
    store.greeted().await;
    let step = lasting(&step(&limit(Algorithm::FixedWindow, LIMIT, LASTING), 1));
    let [primary, first, second] = set.servers() else {
        panic!("a primary and two replicas");
    };
    let lost = format!(":{}", primary.port());
    let (before, cut) = lose(&store, &step, (primary, &mut [first, second])).await;
    until("the new primary is found", async || {
        let _ = decide(&store, &[Step { hits: 0, ..step }]).await;
        !store.shards()[0].shard.ends_with(&lost)
    })
    .await;
    let mut after = Admitted::default();
    after.ask_for_all(&store, &step).await;
    check(before, cut, after, &store);
    // The list is made again there.
    let primary = store.shards()[0].shard.to_string();
    let servers = set.servers().iter();
    let mut found = servers.filter(|it| primary.ends_with(&format!(":{}", it.port())));
    let mut client = found.next().expect("it is one of them").client();
    client.ask(&[
        "EVAL",
        "redis.call('DEL', redis.call('KEYS', '*nodes')[1])",
        "0",
    ]);
    until("the new primary lists the node", async || {
        let listed = client.ask(&["EVAL", "return #redis.call('KEYS', '*nodes')", "0"]);
        listed == Reply::Int(1)
    })
    .await;
    assert_eq!(counts(&store).nodes, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_failover_forgets_nothing_that_was_admitted_from_a_lease() {
    let mut set = Cluster::of(3, 1, GONE);
    let mut config = patient();
    config.deny_cache_max = Duration::ZERO;
    let store = RedisStore::new(cluster::endpoint(&set), config, home());
    cluster::ready(&store).await;
    let step = lasting(&step_of(
        &limit(Algorithm::FixedWindow, LIMIT, LASTING),
        1,
        0,
    ));
    let lost = format!("127.0.0.1:{}", set.ports()[0]);
    let [primary, _, _, replica, ..] = set.servers() else {
        panic!("three primaries and their replicas");
    };
    let (before, cut) = lose(&store, &step, (primary, &mut [replica])).await;
    until("the replica serves", async || {
        let answer = decide(&store, &[Step { hits: 0, ..step }]).await;
        answer.is_ok() && store.shards().iter().all(|it| *it.shard != *lost)
    })
    .await;
    let mut after = Admitted::default();
    after.ask_for_all(&store, &step).await;
    check(before, cut, after, &store);
}

/// A replica that is away can come back and take over, so leases wait for it; decisions do not.
#[tokio::test(flavor = "multi_thread")]
async fn without_a_replica_that_is_named_hits_are_decided_in_redis() {
    let mut set = Cluster::of(3, 1, Duration::from_secs(60));
    let store = RedisStore::new(cluster::endpoint(&set), patient(), home());
    cluster::ready(&store).await;
    let step = lasting(&step_of(
        &limit(Algorithm::FixedWindow, 1 << 30, LASTING),
        1,
        0,
    ));
    until_leased(&store, &step).await;
    set.servers()[3].process().pause();
    until("it is told", async || {
        assert!(decide(&store, &[step]).await.expect("all serve").allowed);
        store
            .faults()
            .iter()
            .any(|it| it.contains("0 of 1 replicas"))
    })
    .await;
    let burned = counts(&store).burned;
    assert!(burned > 0);
    set.servers()[3].process().resume();
    until("leases are granted again", async || {
        let verdicts = decide(&store, &[step]).await.expect("all serve");
        matches!(verdicts.outcomes[0], StepOutcome::Leased(_))
    })
    .await;
    until("nothing is told any more", async || {
        store.faults().is_empty()
    })
    .await;
}
