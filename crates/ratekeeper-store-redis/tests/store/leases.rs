//! No more than the limit passes, however many processes admit hits from leases.
//!
//! Four processes on one server flood counters of every algorithm that is leased. Each notes the time right before it
//! asked and right after the answer; the system's clock is the same for all of them and for the server. Only
//! admissions of which it is certain that they were in a window or an interval are counted there.

mod cases;
mod changed;
mod failover;
mod moving;
mod node;
mod whole;

use std::process::Command;

use ratekeeper_core::Algorithm;
use ratekeeper_core::lease::LEASE_MAX;
use ratekeeper_store::{LeaseGauges, LeasedHits, Step, StepOutcome, Store};
use ratekeeper_store_redis::RedisStore;
use ratekeeper_testkit::process::{DEADLINE, eventually};
use ratekeeper_testkit::redis::{Cluster, Server};

use crate::support::{LASTING, decide, endpoint, home, limit, patient, processes, step};
use cases::{Admission, cases};

pub(crate) use cases::leased;

use node::NODES;

#[test]
fn four_processes_admit_no_more_than_the_limit_from_leases() {
    let server = Server::start();
    let url = format!("redis://127.0.0.1:{}/?prefix=leases:", server.port());
    for (case, admitted, told) in flooded(&server, &url) {
        let [asked, from_leases, calls, grants] = told;
        // Of a bucket that is always empty each hit is decided as it comes in.
        assert!(from_leases * 4 > admitted, "{case:?}");
        assert!((calls + grants) * 2 < asked, "{case:?}");
    }
}

/// Each shard has a replica that has to acknowledge every grant.
#[test]
fn four_processes_on_a_cluster_admit_no_more_than_the_limit_from_leases() {
    let (cluster, meeting) = (Cluster::start(), Server::start());
    let url = format!("{}?prefix=leases:", cluster.url());
    let told = flooded(&meeting, &url);
    let from_leases: u64 = told.iter().map(|(_, _, told)| told[1]).sum();
    assert!(from_leases > 1_000, "{from_leases} hits from leases");
}

/// Floods every counter of the store at `url` by processes that meet at `server`, and holds what was admitted to the
/// limits. Returns for each counter the admissions and what the nodes told.
fn flooded(server: &Server, url: &str) -> Vec<(cases::Case, u64, [u64; 4])> {
    let mut admitted: Vec<Vec<Admission>> = cases().iter().map(|_| Vec::new()).collect();
    let mut told = vec![[0; 4]; admitted.len()];
    let order = |command: &mut Command| node::order(command, server.port(), url);
    for output in processes(NODES, "leases::lease_node", order) {
        node::read(&output, &mut admitted, &mut told);
    }
    let counters = cases().into_iter().zip(admitted).zip(told);
    let counters = counters.map(|((case, mut admitted), told)| {
        let [asked, from_leases, calls, grants] = told;
        let count = admitted.len() as u64;
        println!(
            "{case:?}: {count} of {asked} admitted, {from_leases} from leases, {calls} calls, {grants} grants"
        );
        case.check(&mut admitted);
        (case, count, told)
    });
    counters.collect()
}

/// Not a test by itself: the program of the processes that the other starts.
#[test]
fn lease_node() {
    if let Some((port, url)) = node::orders() {
        node::run(port, &url);
    }
}

fn store(server: &Server) -> RedisStore {
    RedisStore::new(endpoint(server), patient(), home())
}

pub(crate) fn counts(store: &RedisStore) -> LeaseGauges {
    store.leased().unwrap_or_default()
}

fn held(store: &RedisStore, step: &Step) -> LeasedHits {
    store.held(step).expect("it is leased")
}

/// Asks until a hit is admitted from a lease; the number of all that were admitted.
pub(crate) async fn until_leased(store: &RedisStore, step: &Step) -> u64 {
    let begun = std::time::Instant::now();
    for admitted in 1.. {
        let verdicts = decide(store, &[*step]).await.expect("Redis is there");
        assert!(verdicts.allowed, "{verdicts:?}");
        if matches!(verdicts.outcomes[0], StepOutcome::Leased(_)) {
            return admitted;
        }
        assert!(begun.elapsed() < DEADLINE, "no lease was granted");
        tokio::time::sleep(std::time::Duration::from_millis(1)).await;
    }
    unreachable!("it ends by one or the other")
}

#[tokio::test]
async fn what_a_lease_has_left_comes_back() {
    let server = Server::start();
    let store = store(&server);
    let step = leased(&step(
        &limit(ratekeeper_core::Algorithm::FixedWindow, 1_000, LASTING),
        1,
    ));
    let admitted = until_leased(&store, &step).await;
    eventually("what was held is given back", || {
        let counts = counts(&store);
        counts.leases == 0 && counts.granted == counts.spent + counts.returned
    });
    let look = Step { hits: 0, ..step };
    let verdicts = decide(&store, &[look]).await.expect("Redis is there");
    let StepOutcome::Counted(outcome) = verdicts.outcomes[0] else {
        panic!("{verdicts:?}");
    };
    assert_eq!(outcome.remaining, 1_000 - admitted);
}

#[tokio::test]
async fn a_node_that_stops_gives_back_what_it_holds() {
    let server = Server::start();
    let store = store(&server);
    let step = leased(&step(
        &limit(ratekeeper_core::Algorithm::FixedWindow, 1_000, LASTING),
        1,
    ));
    let step = Step {
        lease: LEASE_MAX,
        ..step
    };
    let admitted = until_leased(&store, &step).await;
    assert!(counts(&store).leases > 0);
    store.give_leases_back().await;
    let after = counts(&store);
    assert_eq!((after.leases, after.held), (0, 0), "{after:?}");
    let verdicts = decide(&store, &[step]).await.expect("Redis is there");
    let StepOutcome::Counted(outcome) = verdicts.outcomes[0] else {
        panic!("{verdicts:?}");
    };
    assert_eq!(outcome.remaining, 1_000 - admitted - 1);
}

/// Many leases are freed by a few calls to Redis.
#[tokio::test]
async fn calls_about_many_leases_are_joined() {
    let server = Server::start();
    let store = store(&server);
    let fixed = limit(Algorithm::FixedWindow, 100_000, LASTING);
    for number in 1..=40 {
        let step = Step {
            lease: LEASE_MAX,
            ..leased(&step(&fixed, number))
        };
        until_leased(&store, &step).await;
    }
    assert_eq!(counts(&store).leases, 40);
    let mut redis = server.client();
    redis.ask(&["CONFIG", "RESETSTAT"]);
    store.give_leases_back().await;
    let after = counts(&store);
    assert_eq!((after.leases, after.held), (0, 0), "{after:?}");
    let scripts = redis.calls("evalsha");
    // Without a word to others it would be 40.
    assert!((1..=10).contains(&scripts), "{scripts}");
}

/// A node spends its leases, and not more; then the store is unavailable as ever.
#[tokio::test]
async fn a_node_knows_what_others_hold_as_of_its_last_call() {
    let server = Server::start();
    let place = endpoint(&server);
    let [one, other] = [(); 2].map(|()| RedisStore::new(place.clone(), patient(), home()));
    let step = leased(&step(
        &limit(ratekeeper_core::Algorithm::FixedWindow, 10_000, LASTING),
        1,
    ));
    let step = Step {
        lease: LEASE_MAX,
        ..step
    };
    until_leased(&one, &step).await;
    assert_eq!(held(&one, &step).others.nodes, 0, "it was alone");
    until_leased(&other, &step).await;
    let (first, found) = (held(&one, &step), held(&other, &step).others);
    assert_eq!(found.nodes, 1);
    assert_eq!(found.hits, first.granted);
}

#[tokio::test]
async fn without_redis_a_node_spends_what_it_holds() {
    let mut server = Server::start();
    let mut config = patient();
    config.deadline = std::time::Duration::from_millis(200);
    let store = RedisStore::new(endpoint(&server), config, home());
    let step = leased(&step(
        &limit(ratekeeper_core::Algorithm::FixedWindow, 100_000, LASTING),
        1,
    ));
    let step = Step {
        lease: LEASE_MAX,
        ..step
    };
    until_leased(&store, &step).await;
    let before = held(&store, &step).left;
    server.process().kill();
    let (mut admitted, mut begun) = (0, std::time::Instant::now());
    while let Ok(verdicts) = decide(&store, &[step]).await {
        assert!(verdicts.allowed);
        admitted += u64::from(matches!(verdicts.outcomes[0], StepOutcome::Leased(_)));
        assert!(begun.elapsed() < DEADLINE, "it ends");
        begun = begun.max(std::time::Instant::now() - DEADLINE / 2);
    }
    assert!(admitted >= before.min(1), "{admitted} of {before}");
    assert!(held(&store, &step).left == 0, "{:?}", held(&store, &step));
}

/// Hits of a request that another limit denies go back into their lease.
#[tokio::test]
async fn a_denied_request_spends_nothing_of_a_lease() {
    let server = Server::start();
    let store = store(&server);
    let fixed = |quota| limit(ratekeeper_core::Algorithm::FixedWindow, quota, LASTING);
    let wide = Step {
        lease: LEASE_MAX,
        ..leased(&step(&fixed(100_000), 1))
    };
    let narrow = step(&fixed(1), 2);
    until_leased(&store, &wide).await;
    assert!(
        decide(&store, &[narrow])
            .await
            .expect("Redis is there")
            .allowed
    );
    let before = held(&store, &wide).left;
    assert!(before > 0);
    for _ in 0..10 {
        let verdicts = decide(&store, &[wide, narrow])
            .await
            .expect("Redis is there");
        assert!(!verdicts.allowed);
        assert!(
            matches!(verdicts.outcomes[0], StepOutcome::Leased(_)),
            "{verdicts:?}"
        );
    }
    assert_eq!(held(&store, &wide).left, before);
}

/// Looks, refunds and what is charged although it is denied are decided in the server.
#[tokio::test]
async fn only_plain_hits_are_taken_from_leases() {
    let server = Server::start();
    let store = store(&server);
    let fixed = limit(ratekeeper_core::Algorithm::FixedWindow, 100_000, LASTING);
    let step = Step {
        lease: LEASE_MAX,
        ..leased(&step(&fixed, 1))
    };
    until_leased(&store, &step).await;
    for other in [
        Step { hits: 0, ..step },
        Step { hits: -1, ..step },
        Step {
            charge: ratekeeper_store::Charge::Always,
            ..step
        },
        Step {
            quota_mode: true,
            ..step
        },
    ] {
        let verdicts = decide(&store, &[other]).await.expect("Redis is there");
        assert!(
            matches!(verdicts.outcomes[0], StepOutcome::Counted(_)),
            "{verdicts:?}"
        );
    }
    assert!(store.leases(ratekeeper_store::StoreSlot::default()));
}

/// Processor time of the script for a decision, and bytes of its counter, while nodes lease it.
#[tokio::test]
#[ignore = "a measurement"]
async fn the_cost_of_open_leases() {
    for algorithm in [
        Algorithm::FixedWindow,
        Algorithm::SlidingWindow,
        Algorithm::TokenBucket,
    ] {
        for nodes in [0, 2, 10, 50] {
            let (server, count) = (Server::start(), 300);
            let place = endpoint(&server);
            let exact = step(&limit(algorithm, 1_000_000_000, LASTING), 1);
            let plain = leased(&exact);
            let leasing = Step {
                lease: LEASE_MAX,
                ..plain
            };
            let store = || RedisStore::new(place.clone(), patient(), home());
            let stores: Vec<_> = (0..nodes).map(|_| store()).collect();
            let asking = store();
            for store in &stores {
                until_leased(store, &leasing).await;
            }
            let mut redis = server.client();
            decide(&asking, &[exact]).await.expect("Redis is there");
            redis.ask(&["CONFIG", "RESETSTAT"]);
            for _ in 0..count {
                decide(&asking, &[exact]).await.expect("Redis is there");
            }
            let told = redis.ask(&["INFO", "commandstats"]).text();
            let open = stores.iter().map(|store| counts(store).leases);
            let open: u64 = open.sum();
            let script = told
                .lines()
                .find(|line| line.starts_with("cmdstat_evalsha:"));
            let counter = redis.ask(&["EVAL", BYTES, "0"]);
            println!("{algorithm:?}, {nodes} nodes, {open} leases: {script:?}, {counter:?} bytes");
        }
    }
}

/// The length of the longest text in Redis.
const BYTES: &str = "local most = 0 for _, key in ipairs(redis.call('KEYS', '*')) do \
     if redis.call('TYPE', key).ok == 'string' then most = math.max(most, redis.call('STRLEN', key)) end end return most";
