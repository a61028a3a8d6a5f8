//! Synced counters of three stores on one server, as three nodes have them.

use std::time::Duration;

use ratekeeper_core::{Algorithm, LimitSpec, Micros};
use ratekeeper_store::{Extra, Once, Step, StepOutcome, Store, Until, Verdicts};
use ratekeeper_store_redis::{Endpoint, RedisStore};
use ratekeeper_testkit::redis::{Client, Server};

use crate::support::{LASTING, endpoint, home, limit, patient, step, until};

const INTERVAL: Micros = Micros::from_millis(50);

pub(crate) fn synced(algorithm: Algorithm, quota: u64, number: u64) -> Step {
    let limit = match algorithm {
        Algorithm::FixedWindow => limit(algorithm, quota, LASTING),
        _ => {
            let spec = LimitSpec::new(algorithm, quota, LASTING);
            let spec = LimitSpec {
                sub_windows: Some(12),
                ..spec
            };
            ratekeeper_core::Limit::try_new(spec).expect("a valid limit")
        }
    };
    Step {
        sync: INTERVAL,
        ..step(&limit, number)
    }
}

fn stores(endpoint: &Endpoint) -> [RedisStore; 3] {
    [(); 3].map(|()| RedisStore::new(endpoint.clone(), patient(), home()))
}

/// Decides in memory: anything else is a fault.
pub(crate) fn now(store: &RedisStore, steps: &[Step]) -> Verdicts {
    let request =
        ratekeeper_store::Request::new(steps, ratekeeper_core::Mode::default(), wall_clock());
    match store.decide(&request) {
        ratekeeper_store::Answer::Decided(verdicts) => verdicts,
        ratekeeper_store::Answer::Pending(_) => panic!("synced counters answer at once"),
    }
}

fn wall_clock() -> ratekeeper_core::Timestamp {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let micros = now.expect("it is later").as_micros();
    ratekeeper_core::Timestamp::from_micros(u64::try_from(micros).expect("not for long"))
}

/// Waits until nothing is pending at any of the stores.
pub(crate) async fn added(stores: &[RedisStore]) {
    until("all hits are added", async || {
        stores.iter().all(|store| store.sync_counts().pending == 0)
    })
    .await;
}

/// The sums of all synced counters in the server, and the keys without an expiry.
fn sums(client: &mut Client) -> (Vec<i64>, usize) {
    let script = "local sums, lasting = {}, 0
        for _, key in ipairs(redis.call('KEYS', '*:*')) do
          if redis.call('TYPE', key).ok == 'string' and string.match(key, '}[%w_-]+:%d+$') then
            sums[#sums + 1] = tonumber(redis.call('GET', key))
          end
          if string.match(key, '}[%w_-]+:%d+') and redis.call('PTTL', key) < 0 then lasting = lasting + 1 end
        end
        return lasting .. ' ' .. table.concat(sums, ' ')";
    let text = client.ask(&["EVAL", script, "0"]).text();
    let mut numbers = text
        .split(|c: char| !c.is_ascii_digit() && c != '-')
        .filter_map(|word| word.parse::<i64>().ok());
    let lasting = numbers.next().expect("their number");
    (
        numbers.collect(),
        usize::try_from(lasting).unwrap_or(usize::MAX),
    )
}

/// The counter is added at its own interval, even if no other one is due.
#[tokio::test]
async fn a_short_interval_is_kept() {
    const SYNCS: u64 = 60;
    let server = Server::start();
    let store = RedisStore::new(endpoint(&server), patient(), home());
    let step = Step {
        sync: Micros::from_millis(10),
        ..synced(Algorithm::FixedWindow, 1_000_000, 1)
    };
    let begun = std::time::Instant::now();
    until("it is added again and again", async || {
        now(&store, &[step]);
        store.sync_counts().synced >= SYNCS
    })
    .await;
    // 0.6 s on an idle machine; 12 s where only the look for counters to forget, each 200 ms, finds what is due.
    let took = begun.elapsed();
    assert!(took < Duration::from_secs(6), "{SYNCS} took {took:?}");
}

#[tokio::test]
async fn three_stores_add_each_hit_once_and_learn_of_each_other() {
    let server = Server::start();
    let mut client = server.client();
    for algorithm in [Algorithm::FixedWindow, Algorithm::SlidingWindow] {
        client.ask(&["FLUSHALL"]);
        let stores = stores(&endpoint(&server));
        for store in &stores {
            until("it knows the secret", async || store.hash_key().is_some()).await;
        }
        let it = synced(algorithm, 1_000, 1);
        let mut admitted = 0;
        for round in 0..40_u64 {
            for store in &stores {
                admitted += u64::from(now(store, &[it]).allowed);
            }
            if round % 10 == 0 {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        }
        assert_eq!(admitted, 120);
        added(&stores).await;
        let (sums, lasting) = sums(&mut client);
        assert_eq!(
            (sums.iter().sum::<i64>(), lasting),
            (120, 0),
            "{algorithm:?}"
        );
        // Each learns of the others while it is asked, though what is asked for is denied.
        let too_much = Step { hits: 5_000, ..it };
        until("all know all", async || {
            stores.iter().all(|store| {
                let verdicts = now(store, &[too_much]);
                let StepOutcome::Counted(outcome) = verdicts.outcomes[0] else {
                    return false;
                };
                outcome.remaining == 1_000 - admitted
            })
        })
        .await;
        for store in &stores {
            let known = store.synced(&it).expect("it is synced");
            assert_eq!(known.own + known.others, admitted, "{known:?}");
        }
    }
}

/// The limit is enforced over all of them, and what passes beyond it is what they did not know of.
#[tokio::test]
async fn a_flood_is_denied_by_the_sum_of_all() {
    let server = Server::start();
    let stores = stores(&endpoint(&server));
    let it = synced(Algorithm::FixedWindow, 600, 7);
    let mut admitted = [0_u64; 3];
    let mut last = 0;
    until("nothing passes any more", async || {
        for (store, admitted) in stores.iter().zip(&mut admitted) {
            for _ in 0..5 {
                *admitted += u64::from(now(store, &[it]).allowed);
            }
        }
        let all = admitted.iter().sum();
        let is_over = all == last && all >= 600;
        last = all;
        is_over && stores.iter().all(|store| !now(store, &[it]).allowed)
    })
    .await;
    assert!(admitted.iter().all(|of_one| *of_one <= 600), "{admitted:?}");
    assert!(last <= 3 * 600, "{admitted:?}");
}

/// Redis away: nodes go on, each by itself, and what is pending is added once when it is back, though it lost everything.
#[tokio::test]
async fn what_was_counted_without_redis_is_added_once_it_is_back() {
    let mut server = Server::start();
    let stores = stores(&endpoint(&server));
    let it = synced(Algorithm::FixedWindow, 100, 3);
    for store in &stores {
        for _ in 0..10 {
            assert!(now(store, &[it]).allowed);
        }
    }
    added(&stores).await;
    server.process().kill();
    for store in &stores {
        for _ in 0..5 {
            assert!(now(store, &[it]).allowed, "it goes on");
        }
    }
    until("syncs have failed", async || {
        stores.iter().all(|store| store.sync_counts().failed > 0)
    })
    .await;
    assert!(stores.iter().all(|store| store.sync_counts().pending >= 5));
    server.restart();
    let mut client = server.client();
    until("all is there again", async || {
        let (sums, lasting) = sums(&mut client);
        sums == [45] && lasting == 0
    })
    .await;
    added(&stores).await;
    for store in &stores {
        let known = store.synced(&it).expect("it is synced");
        assert_eq!(known.own, 15);
    }
}

/// Nodes bring back the counts that a FLUSHALL took.
#[tokio::test]
async fn counts_that_redis_has_lost_are_brought_back() {
    let server = Server::start();
    let endpoint = endpoint(&server);
    let stores = stores(&endpoint);
    let it = synced(Algorithm::FixedWindow, 1_000, 3);
    for store in &stores {
        for _ in 0..20 {
            now(store, &[it]);
        }
    }
    added(&stores).await;
    let mut client = server.client();
    client.ask(&["FLUSHALL"]);
    let mut more = 0;
    until("the sum is right again", async || {
        for store in &stores {
            more += i64::from(now(store, &[it]).allowed);
        }
        added(&stores).await;
        sums(&mut client).0 == [60 + more]
    })
    .await;
}

#[tokio::test]
async fn a_node_that_stops_adds_what_is_pending() {
    let server = Server::start();
    let [store, ..] = stores(&endpoint(&server));
    let it = Step {
        sync: Micros::from_secs(60),
        ..synced(Algorithm::FixedWindow, 1_000, 3)
    };
    now(&store, &[it]);
    added(std::slice::from_ref(&store)).await;
    for _ in 0..9 {
        now(&store, &[it]);
    }
    assert_eq!(store.sync_counts().pending, 9);
    store.add_pending().await;
    assert_eq!(store.sync_counts().pending, 0);
    assert_eq!(sums(&mut server.client()).0, [10]);
}

/// A denial by a counter in Redis takes nothing from a synced one.
#[tokio::test]
async fn a_request_that_redis_denies_takes_nothing() {
    let server = Server::start();
    let [store, ..] = stores(&endpoint(&server));
    let it = synced(Algorithm::FixedWindow, 1_000, 3);
    let narrow = step(&limit(Algorithm::FixedWindow, 1, LASTING), 4);
    let mut allowed = 0;
    for _ in 0..10 {
        let steps = [it, narrow];
        let request =
            ratekeeper_store::Request::new(&steps, ratekeeper_core::Mode::default(), wall_clock());
        let verdicts = match store.decide(&request) {
            ratekeeper_store::Answer::Decided(verdicts) => verdicts,
            ratekeeper_store::Answer::Pending(ticket) => ticket.await.expect("Redis is there"),
        };
        allowed += u64::from(verdicts.allowed);
    }
    assert_eq!(allowed, 1);
    let known = store.synced(&it).expect("it is synced");
    assert_eq!(known.own, 1);
}

/// A step with an id is decided in Redis, on a counter of its own.
#[tokio::test]
async fn requests_that_are_carried_out_once_are_decided_in_redis() {
    let server = Server::start();
    let [store, ..] = stores(&endpoint(&server));
    let steps = [synced(Algorithm::FixedWindow, 2, 3)];
    let ask = async |id: u128| {
        let extra = Extra {
            once: Some(Once {
                id,
                until: Until::After(Micros::from_secs(60)),
                content: 1,
            }),
            ..Extra::default()
        };
        let request = ratekeeper_store::Request {
            extra: Some(&extra),
            ..ratekeeper_store::Request::new(
                &steps,
                ratekeeper_core::Mode::default(),
                ratekeeper_core::Timestamp::EPOCH,
            )
        };
        match store.decide(&request) {
            ratekeeper_store::Answer::Pending(ticket) => ticket.await.expect("Redis is there"),
            ratekeeper_store::Answer::Decided(verdicts) => panic!("{verdicts:?}"),
        }
    };
    for id in [1, 1, 2] {
        assert!(ask(id).await.allowed);
    }
    let limited = ask(3).await;
    assert!(!limited.allowed, "{limited:?}");
}

/// One pipeline for all counters that are due, and one call each, whatever the traffic.
#[tokio::test]
async fn calls_do_not_depend_on_the_traffic() {
    let server = Server::start();
    let stores = stores(&endpoint(&server));
    let mut client = server.client();
    let counters: Vec<Step> = (0..25)
        .map(|number| Step {
            sync: Micros::from_secs(1),
            ..synced(Algorithm::FixedWindow, 1_000_000, number)
        })
        .collect();
    let flood = async |span: Duration| {
        let begun = tokio::time::Instant::now();
        while begun.elapsed() < span {
            for store in &stores {
                for counter in &counters {
                    now(store, std::slice::from_ref(counter));
                }
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    flood(Duration::from_millis(1_500)).await;
    let before = client.calls("incrby");
    let begun = tokio::time::Instant::now();
    flood(Duration::from_secs(4)).await;
    let seconds = begun.elapsed().as_secs_f64();
    let calls = (client.calls("incrby") - before) as f64;
    // Each node has its turns at times of its own: one more or less of each.
    let (least, most) = (75.0 * (seconds - 1.0), 75.0 * (seconds + 1.0));
    assert!(calls >= least && calls <= most, "{calls} in {seconds} s");
}
