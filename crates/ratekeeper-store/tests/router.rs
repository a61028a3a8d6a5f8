//! Several stores, of which each counter has its own.

use ratekeeper_core::{Algorithm, Limit, LimitSpec, Micros, Mode, Timestamp};
use ratekeeper_store::{
    Answer, Backend, CounterKey, MemoryConfig, MemoryStore, Request, Router, ServedStore, Step,
    Store, StoreSlot,
};

const NOW: Timestamp = Timestamp::from_secs(1_789_000_020);

fn memory() -> MemoryStore {
    let config = MemoryConfig {
        memory_limit: MemoryConfig::LEAST,
        ..MemoryConfig::default()
    };
    MemoryStore::new(config).expect("the least memory")
}

fn router(names: &[&str]) -> Router<MemoryStore> {
    let named = names
        .iter()
        .map(|name| ((*name).into(), Backend::Shared(memory())));
    // Memory answers at once: nothing is left to be seen through.
    Router::new(Backend::Memory(memory()), named.collect(), |_| {
        unreachable!("nothing is awaited")
    })
}

/// One hit on a counter of `identity` in `store`, of `quota` a minute.
fn step(identity: u64, store: StoreSlot, quota: u64) -> Step {
    let spec = LimitSpec::new(Algorithm::FixedWindow, quota, Micros::from_secs(60));
    let key = CounterKey {
        subject: 7,
        identity,
    };
    Step {
        store,
        ..Step::new(key, Limit::try_new(spec).expect("a valid limit"))
    }
}

fn allows(router: &Router<MemoryStore>, steps: &[Step]) -> bool {
    match router.decide(&Request::new(steps, Mode::default(), NOW)) {
        Answer::Decided(verdicts) => verdicts.allowed,
        Answer::Pending(_) => unreachable!("memory answers at once"),
    }
}

#[test]
fn a_name_is_the_slot_of_its_store_and_others_are_the_default() {
    let router = router(&["eu", "us"]);
    let slots = ["eu", "us", "asia"].map(|name| router.slot(name));
    assert_eq!(slots, [StoreSlot(1), StoreSlot(2), StoreSlot::default()]);
}

#[test]
fn each_store_counts_by_itself() {
    let router = router(&["eu"]);
    let (here, there) = (step(1, StoreSlot(0), 1), step(1, StoreSlot(1), 1));
    assert!(allows(&router, &[here]) && !allows(&router, &[here]));
    assert!(allows(&router, &[there]), "the same key, in another store");
    assert_eq!(router.gauges().counters, 1, "the default store's");
}

#[test]
fn a_request_over_two_stores_takes_of_both_or_of_neither() {
    let router = router(&["eu"]);
    let (wide, narrow) = (step(1, StoreSlot(0), 2), step(2, StoreSlot(1), 1));
    assert!(allows(&router, &[wide, narrow]));
    assert!(!allows(&router, &[wide, narrow]), "one of the two is full");
    assert!(
        allows(&router, &[wide]),
        "what was taken of it was given back"
    );
    assert!(!allows(&router, &[wide]));
}
