//! A limit that changes while leases are open on its counter: what was admitted counts, what was held comes back.

use ratekeeper_core::lease::LEASE_MAX;
use ratekeeper_core::{Algorithm, Limit, LimitSpec};
use ratekeeper_store::{LeaseGauges, Step, StepOutcome};
use ratekeeper_store_redis::RedisStore;
use ratekeeper_testkit::process::DEADLINE;
use ratekeeper_testkit::redis::Server;

use super::{counts, held, leased, until_leased};
use crate::support::{LASTING, decide, endpoint, home, patient, step, until};

fn limits(quota: u64) -> Vec<Limit> {
    let spec = |algorithm| LimitSpec::new(algorithm, quota, LASTING);
    let specs = [
        spec(Algorithm::FixedWindow),
        spec(Algorithm::TokenBucket),
        spec(Algorithm::Gcra),
        LimitSpec {
            sub_windows: Some(12),
            ..spec(Algorithm::SlidingWindow)
        },
    ];
    let limit = |spec| Limit::try_new(spec).expect("a valid limit");
    specs.into_iter().map(limit).collect()
}

/// The step under another limit, leased for so long that none ends unreported while a busy machine stands still.
fn leased_for_long(limit: &Limit, number: u64) -> Step {
    Step {
        lease: LEASE_MAX,
        ..leased(&step(limit, number))
    }
}

async fn takes(node: &RedisStore, step: Step) -> bool {
    let verdicts = decide(node, &[step]).await.expect("Redis is there");
    verdicts.allowed
}

/// Admits by turns until both nodes, which know the other limit, have had leases of it; the number admitted.
async fn admit_under_both(nodes: &[RedisStore; 2], [before, after]: [Step; 2]) -> u64 {
    let [one, other] = nodes;
    let mut admitted = until_leased(one, &before).await + until_leased(other, &before).await;
    let open = [one, other].map(|node| held(node, &before).granted);
    assert!(open.iter().all(|granted| *granted > 0), "{open:?}");
    // The change has reached one of them, and then both.
    for steps in [[after, before], [after, after]] {
        for _ in 0..40 {
            for (node, step) in nodes.iter().zip(steps) {
                admitted += u64::from(takes(node, step).await);
            }
        }
    }
    for node in nodes {
        admitted += until_leased(node, &after).await;
    }
    admitted
}

/// Waits until everything that the nodes held is charged or freed, and nothing of it was lost.
async fn until_all_is_back(nodes: &[RedisStore; 2]) {
    for node in nodes {
        until("what was held is given back", async || {
            let LeaseGauges {
                leases,
                granted,
                spent,
                returned,
                ..
            } = counts(node);
            leases == 0 && granted == spent + returned
        })
        .await;
    }
}

async fn admits_the_new_limit(quotas: [u64; 2]) {
    let server = Server::start();
    let place = endpoint(&server);
    let node = || RedisStore::new(place.clone(), patient(), home());
    let (nodes, exact) = ([node(), node()], node());
    let [before, after] = quotas.map(limits);
    for (number, (before, after)) in (1..).zip(before.iter().zip(&after)) {
        let name = before.algorithm().name();
        let steps = [before, after].map(|limit| leased_for_long(limit, number));
        let admitted = admit_under_both(&nodes, steps).await;
        until_all_is_back(&nodes).await;
        let rest = after.quota() - admitted;
        let all = Step {
            hits: rest.cast_signed(),
            ..step(after, number)
        };
        let verdicts = decide(&exact, &[Step { hits: 0, ..all }]).await;
        let verdicts = verdicts.expect("Redis is there");
        let StepOutcome::Counted(outcome) = verdicts.outcomes[0] else {
            panic!("{verdicts:?}");
        };
        assert_eq!(outcome.remaining, rest, "{name} of which {admitted} passed");
        assert!(takes(&exact, all).await, "{name}");
        assert!(!takes(&exact, step(after, number)).await, "{name}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_limit_that_is_raised_while_leases_are_open_admits_all_of_the_new_one() {
    let done = tokio::time::timeout(DEADLINE * 2, admits_the_new_limit([2_000, 6_000]));
    done.await.expect("it ends");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_limit_that_is_lowered_while_leases_are_open_admits_all_of_the_new_one() {
    let done = tokio::time::timeout(DEADLINE * 2, admits_the_new_limit([6_000, 2_000]));
    done.await.expect("it ends");
}
