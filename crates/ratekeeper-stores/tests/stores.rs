//! Several stores, of which each counter has its own.

use ratekeeper_core::{Algorithm, Limit, LimitSpec, Micros, Mode, Timestamp};
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use ratekeeper_store::across::CounterSlot;
use ratekeeper_store::{
    Answer, CounterKey, HashKey, MemoryConfig, MemoryStore, Request, Step, Store, StoreSlot,
};
use ratekeeper_stores::{Backend, BoxFuture, SharedStore, StoreReply, Stores};
use tokio::sync::Barrier;

const NOW: Timestamp = Timestamp::from_secs(1_789_000_020);

fn memory() -> MemoryStore {
    let config = MemoryConfig {
        memory_limit: MemoryConfig::LEAST,
        ..MemoryConfig::default()
    };
    MemoryStore::new(config).expect("the least memory")
}

/// A store in memory that takes the place of one that nodes share.
#[derive(Debug)]
struct Near(MemoryStore);

impl SharedStore for Near {
    fn ask(&self, _: CounterSlot, request: &Request<'_>) -> Answer<StoreReply> {
        Answer::Decided(self.0.decide_now(request))
    }

    fn hash_key(&self) -> Option<HashKey> {
        None
    }
}

fn stores(names: &[&str]) -> Stores {
    let shared = || Backend::Shared(Arc::new(Near(memory())));
    let named = names.iter().map(|name| ((*name).into(), shared()));
    // Memory answers at once: nothing is left to be seen through.
    Stores::new(Backend::Memory(memory()), named.collect(), |_| {
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

fn allows(stores: &Stores, steps: &[Step]) -> bool {
    match stores.decide(&Request::new(steps, Mode::default(), NOW)) {
        Answer::Decided(verdicts) => verdicts.allowed,
        Answer::Pending(_) => unreachable!("memory answers at once"),
    }
}

#[test]
fn a_name_is_the_slot_of_its_store_and_others_are_the_default() {
    let stores = stores(&["eu", "us"]);
    let slots = ["eu", "us", "asia"].map(|name| stores.slot(name));
    assert_eq!(slots, [StoreSlot(1), StoreSlot(2), StoreSlot::default()]);
}

#[test]
fn each_store_counts_by_itself() {
    let stores = stores(&["eu"]);
    let (here, there) = (step(1, StoreSlot(0), 1), step(1, StoreSlot(1), 1));
    assert!(allows(&stores, &[here]) && !allows(&stores, &[here]));
    assert!(allows(&stores, &[there]), "the same key, in another store");
    assert_eq!(stores.gauges().counters, 1, "the default store's");
}

#[test]
fn a_request_over_two_stores_takes_of_both_or_of_neither() {
    let stores = stores(&["eu"]);
    let (wide, narrow) = (step(1, StoreSlot(0), 2), step(2, StoreSlot(1), 1));
    assert!(allows(&stores, &[wide, narrow]));
    assert!(!allows(&stores, &[wide, narrow]), "one of the two is full");
    assert!(
        allows(&stores, &[wide]),
        "what was taken of it was given back"
    );
    assert!(!allows(&stores, &[wide]));
}

/// A store that is closed once others are being closed, too.
#[derive(Debug)]
struct Joined(Near, Arc<Barrier>);

impl SharedStore for Joined {
    fn ask(&self, slot: CounterSlot, request: &Request<'_>) -> Answer<StoreReply> {
        self.0.ask(slot, request)
    }

    fn hash_key(&self) -> Option<HashKey> {
        self.0.hash_key()
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        Box::pin(async {
            self.1.wait().await;
        })
    }
}

#[test]
fn no_store_waits_for_another_one_to_be_closed() {
    let all = Arc::new(Barrier::new(3));
    let shared = || Backend::Shared(Arc::new(Joined(Near(memory()), Arc::clone(&all))));
    let named = ["eu", "us"].map(|name| (name.into(), shared()));
    let stores = Stores::new(shared(), named.into(), |_| {
        unreachable!("nothing is awaited")
    });
    let mut closed = pin!(stores.close());
    let mut context = Context::from_waker(Waker::noop());
    let polled = [(); 2].map(|()| closed.as_mut().poll(&mut context));
    assert_eq!(polled, [Poll::Pending, Poll::Ready(())]);
}
