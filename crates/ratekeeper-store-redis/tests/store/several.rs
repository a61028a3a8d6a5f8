//! Several stores of one service, whose counters are named by one secret whatever is away.

use ratekeeper_core::{Algorithm, Micros};
use ratekeeper_store::{
    HashKey, MemoryConfig, MemoryStore, Step, StepOutcome, Store, StoreError, StoreSlot,
};
use ratekeeper_store_redis::{Endpoint, RedisStore};
use ratekeeper_stores::{Backend, Stores};
use ratekeeper_testkit::process::eventually;
use ratekeeper_testkit::redis::{Reply, Server};

use crate::leases::{leased, until_leased};
use crate::support::{LASTING, decide, home, limit, patient, step};

/// The key under which a single server keeps the copy for services whose first store is another one.
const COPY: &str = "rk:hash-key:copy:0";

fn node(servers: &[&Server]) -> Vec<RedisStore> {
    let endpoints = servers.iter().map(|server| {
        let url = format!("redis://127.0.0.1:{}/", server.port());
        (Endpoint::parse(&url).expect("a good URL"), patient())
    });
    RedisStore::several(endpoints.collect(), &home())
}

fn secret(server: &Server) -> Reply {
    server.client().ask(&["GET", "rk:hash-key"])
}

fn copy(server: &Server) -> Reply {
    server.client().ask(&["GET", COPY])
}

async fn allows(store: &RedisStore) -> Result<bool, StoreError> {
    let limit = limit(Algorithm::FixedWindow, 1_000, LASTING);
    let verdicts = decide(store, &[step(&limit, 1)]).await;
    verdicts.map(|verdicts| verdicts.allowed)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_starts_while_the_first_store_hangs_finds_the_secret_in_another() {
    let (mut first, second) = (Server::start(), Server::start());
    let one = node(&[&first, &second]);
    eventually("both have the secret", || {
        one[0].is_hash_key_agreed() && copy(&second) == secret(&first)
    });
    first.process().pause();
    let two = node(&[&first, &second]);
    eventually("it is found", || two[0].hash_key().is_some());
    assert_eq!(two[1].hash_key(), one[0].hash_key());
    assert!(!two[0].is_hash_key_agreed(), "the first may say another");
    assert_eq!(allows(&two[1]).await, Ok(true));
    first.process().resume();
    eventually("it is agreed upon", || two[1].is_hash_key_agreed());
    assert_eq!(two[1].hash_key(), one[0].hash_key());
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_counted_in_any_store_before_the_first_has_told_the_secret() {
    let (mut first, second) = (Server::start(), Server::start());
    first.process().pause();
    let stores = node(&[&first, &second]);
    stores[1].greeted().await;
    assert_eq!(stores[1].hash_key(), None);
    assert_eq!(allows(&stores[1]).await, Err(StoreError::Unavailable));
    let is_said = || {
        let faults = stores[0].faults();
        faults.iter().any(|it| it.contains("has told the key that"))
    };
    assert!(is_said(), "{:?}", stores[0].faults());
    assert_eq!(copy(&second), Reply::Null);
    first.process().resume();
    eventually("it is agreed upon", || stores[1].is_hash_key_agreed());
    assert!(!is_said(), "{:?}", stores[0].faults());
    assert_eq!(allows(&stores[1]).await, Ok(true));
    eventually("each store has it", || {
        secret(&first) != Reply::Null && secret(&first) == copy(&second)
    });
}

#[tokio::test(flavor = "multi_thread")]
async fn copies_that_differ_are_a_fault_until_the_first_store_has_spoken() {
    let (mut first, second, third) = (Server::start(), Server::start(), Server::start());
    for (server, text) in [(&second, "a".repeat(16)), (&third, "b".repeat(16))] {
        server.client().ask(&["SET", COPY, &text]);
    }
    first.process().pause();
    let stores = node(&[&first, &second, &third]);
    let is_said = || {
        let faults = stores[0].faults();
        faults.iter().any(|it| it.contains("not the same in all"))
    };
    eventually("it is said", is_said);
    first.process().resume();
    eventually("it is agreed upon", || stores[0].is_hash_key_agreed());
    assert!(!is_said(), "{:?}", stores[0].faults());
    eventually("each store has it", || {
        secret(&first) == copy(&second) && secret(&first) == copy(&third)
    });
}

#[tokio::test(flavor = "multi_thread")]
async fn services_that_name_two_stores_in_opposite_order_leave_each_other_their_secrets() {
    let (east, west) = (Server::start(), Server::start());
    let secrets = [[b'e'; 16], [b'w'; 16]];
    let stored = secrets.map(|secret| Reply::Bytes(secret.to_vec()));
    for (server, secret) in [(&east, &secrets[0]), (&west, &secrets[1])] {
        let text = std::str::from_utf8(secret).expect("letters");
        server.client().ask(&["SET", "rk:hash-key", text]);
    }
    let services = [node(&[&east, &west]), node(&[&west, &east])];
    for _ in 0..3 {
        // Once the copies are back, each node has looked at both servers again.
        eventually("each server has the copy of the other's", || {
            let copies = [copy(&west), copy(&east)];
            copies == stored
                && services
                    .iter()
                    .flatten()
                    .all(|store| store.is_hash_key_agreed())
        });
        assert_eq!([secret(&east), secret(&west)], stored);
        for (service, secret) in services.iter().zip(secrets) {
            assert!(
                service
                    .iter()
                    .all(|it| it.hash_key() == Some(HashKey::from_bytes(secret)))
            );
        }
        for server in [&east, &west] {
            server.client().ask(&["DEL", COPY]);
        }
    }
}

#[tokio::test]
async fn a_denial_by_another_store_puts_leased_hits_back() {
    let server = Server::start();
    let store = crate::support::store(&server, patient());
    let limit = |quota| limit(Algorithm::FixedWindow, quota, LASTING);
    let here = Step {
        lease: Micros::from_secs(600),
        ..leased(&step(&limit(1_000), 1))
    };
    // It never fits.
    let there = Step {
        store: StoreSlot(1),
        hits: 2,
        ..step(&limit(1), 2)
    };
    let memory = MemoryStore::new(MemoryConfig::default()).expect("there is memory");
    let named = vec![("other".into(), Backend::Memory(memory))];
    let stores = Stores::new(Backend::Shared(store.shared()), named, |_| {});
    until_leased(&store, &here).await;
    let held = || store.held(&here).expect("it is leased");
    // The next lease may come in between.
    for _ in 0..100 {
        let before = held();
        let verdicts = decide(&stores, &[here, there]).await;
        let verdicts = verdicts.expect("both are there");
        assert!(!verdicts.allowed, "{verdicts:?}");
        let after = held();
        if matches!(verdicts.outcomes[0], StepOutcome::Leased(_)) && before.granted == after.granted
        {
            assert_eq!(before.left, after.left);
            return;
        }
    }
    panic!("no hit was taken from a lease");
}
