//! Every denial from memory is the one that Redis would have given.

use std::sync::Arc;
use std::time::Duration;

use ratekeeper_core::{Algorithm, Micros, Outcome, Verdict};
use ratekeeper_store::{Step, StepOutcome, Verdicts};
use ratekeeper_store_redis::RedisStore;
use ratekeeper_testkit::redis::Server;

use crate::leases::leased;
use crate::support::{LASTING, decide, endpoint, home, limit, patient, step, until};

fn pair(server: &Server) -> (RedisStore, RedisStore) {
    let endpoint = endpoint(server);
    let mut asking = patient();
    asking.deny_cache_max = Duration::ZERO;
    let remembering = RedisStore::new(endpoint.clone(), patient(), home());
    (remembering, RedisStore::new(endpoint, asking, home()))
}

fn outcome(verdicts: &Verdicts) -> Outcome {
    match verdicts.outcomes[0] {
        StepOutcome::Counted(outcome) => outcome,
        ref other => panic!("{other:?}"),
    }
}

/// The time at which the same hits would fit, by the server's clock.
fn comes_back(verdicts: &Verdicts) -> u64 {
    let wait = outcome(verdicts).retry_after;
    verdicts.at.after(wait).as_micros()
}

async fn remembered(store: &RedisStore, step: Step) -> Option<Verdicts> {
    let before = store.denied_from_memory();
    let verdicts = decide(store, &[step]).await.expect("the server answers");
    (store.denied_from_memory() > before).then_some(verdicts)
}

#[tokio::test]
async fn a_denial_from_memory_is_the_one_of_the_server() {
    let server = Server::start();
    let (remembering, asking) = pair(&server);
    let algorithms = [
        Algorithm::FixedWindow,
        Algorithm::SlidingWindow,
        Algorithm::SlidingLog,
        Algorithm::TokenBucket,
        Algorithm::Gcra,
    ];
    let mut compared = 0;
    for (number, algorithm) in (0..).zip(algorithms) {
        for hits in [1, 2, 3] {
            let limit = limit(algorithm, 20, Micros::from_millis(400));
            let step = Step {
                hits,
                ..step(&limit, number * 10 + hits.unsigned_abs())
            };
            for _ in 0..300 {
                let Some(kept) = remembered(&remembering, step).await else {
                    continue;
                };
                let asked = decide(&asking, &[step]).await.unwrap();
                let name = algorithm.name();
                assert_eq!(outcome(&kept).verdict, Verdict::Later);
                if asked.allowed {
                    assert!(asked.at.as_micros() >= comes_back(&kept), "{name}");
                } else {
                    assert_eq!(comes_back(&asked), comes_back(&kept), "{name} of {hits}");
                    compared += 1;
                }
            }
        }
    }
    assert!(compared > 100, "{compared} were compared");
}

#[tokio::test]
async fn a_flood_of_denials_is_not_asked() {
    let server = Server::start();
    let (store, _) = pair(&server);
    let limit = limit(Algorithm::FixedWindow, 5, LASTING);
    for _ in 0..1_000 {
        decide(&store, &[step(&limit, 1)]).await.unwrap();
    }
    let sent: u64 = store.shards().iter().map(|shard| shard.decisions).sum();
    assert_eq!(sent + store.denied_from_memory(), 1_000);
    assert!(store.denied_from_memory() > 500, "{sent} were asked");
}

#[tokio::test]
async fn looks_refunds_and_other_limits_are_always_asked() {
    let server = Server::start();
    let (store, _) = pair(&server);
    let (small, large) = (
        limit(Algorithm::FixedWindow, 5, LASTING),
        limit(Algorithm::FixedWindow, 50, LASTING),
    );
    // A denial is kept for so short a time that the next request may come too late for it.
    until("a denial is repeated from memory", async || {
        decide(&store, &[step(&small, 1)]).await.unwrap();
        decide(&store, &[step(&small, 1)]).await.unwrap();
        store.denied_from_memory() > 0
    })
    .await;
    let before = store.denied_from_memory();
    let look = Step {
        hits: 0,
        ..step(&small, 1)
    };
    assert!(decide(&store, &[look]).await.unwrap().allowed);
    assert!(decide(&store, &[step(&large, 1)]).await.unwrap().allowed);
    assert_eq!(store.denied_from_memory(), before);
    // The node's own refunds are seen at once: 6 are taken, 2 come back.
    let refund = Step {
        hits: -2,
        ..step(&small, 1)
    };
    assert!(decide(&store, &[refund]).await.unwrap().allowed);
    assert!(decide(&store, &[step(&small, 1)]).await.unwrap().allowed);
}

#[tokio::test]
async fn what_others_give_back_is_seen_in_time() {
    let server = Server::start();
    let (remembering, asking) = pair(&server);
    let remembering = Arc::new(remembering);
    let limit = limit(Algorithm::FixedWindow, 5, LASTING);
    for _ in 0..7 {
        decide(&*remembering, &[step(&limit, 1)]).await.unwrap();
    }
    let refund = Step {
        hits: -5,
        ..step(&limit, 1)
    };
    decide(&asking, &[refund]).await.unwrap();
    // The exact bound is tested by a told clock.
    until("it is seen", async || {
        let verdicts = decide(&*remembering, &[step(&limit, 1)]).await;
        verdicts.unwrap().allowed
    })
    .await;
}

/// Hits that another node holds come back when its lease ends: a denial kept for longer would refuse what is there.
#[tokio::test]
async fn a_denial_of_a_leased_limit_is_kept_for_a_lease_at_most() {
    let server = Server::start();
    let endpoint = endpoint(&server);
    let mut config = patient();
    config.deny_cache_max = Duration::from_secs(600);
    let remembering = RedisStore::new(endpoint.clone(), config, home());
    let other = RedisStore::new(endpoint, patient(), home());
    let plain = step(&limit(Algorithm::FixedWindow, 100, LASTING), 1);
    let by_lease = leased(&plain);
    for _ in 0..100 {
        assert!(decide(&other, &[plain]).await.unwrap().allowed);
    }
    until("a denial is repeated from memory", async || {
        assert!(!decide(&remembering, &[by_lease]).await.unwrap().allowed);
        remembering.denied_from_memory() > 0
    })
    .await;
    // From now on nothing is leased: hits that come back can only be found by asking for them.
    remembering.give_leases_back().await;
    let before = remembering.denied_from_memory();
    until("a denial is repeated from memory again", async || {
        assert!(!decide(&remembering, &[by_lease]).await.unwrap().allowed);
        remembering.denied_from_memory() > before
    })
    .await;
    let refund = Step { hits: -5, ..plain };
    assert!(decide(&other, &[refund]).await.unwrap().allowed);
    until("what came back is seen", async || {
        decide(&remembering, &[by_lease]).await.unwrap().allowed
    })
    .await;
}
