//! A check that fits its inline buffers allocates nothing, and once if its store answers later.

use std::future::{Ready, ready};
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use ratekeeper_core::Timestamp;
use ratekeeper_limiter::{Check, Limiter, LimiterOptions};
use ratekeeper_rules::{Options, RuleSet, Source, load};
use ratekeeper_store::memory::{MemoryConfig, MemoryStore};
use ratekeeper_store::{Answer, Request, Store, StoreError, Verdicts};

const RULES: &str = "
domain: api
descriptors:
  - key: api_key
    rate_limit: { unit: minute, requests_per_unit: 50 }
    descriptors:
      - key: endpoint
        value: POST /orders
        rate_limit:
          - { window: 1s, limit: 5, algorithm: gcra }
          - { window: 60s, limit: 20 }
";

fn orders() -> Check<'static> {
    let caller = ("api_key", "abc");
    Check::new("api")
        .descriptor([caller])
        .descriptor([caller, ("endpoint", "POST /orders")])
}

fn rules() -> RuleSet {
    let source = Source {
        name: "rules.yaml".to_owned(),
        text: RULES.to_owned(),
    };
    let loaded = load(&[source], &Options::default());
    loaded.expect("the rules above").rules
}

fn memory() -> MemoryStore {
    MemoryStore::new(MemoryConfig::default()).expect("the default store")
}

#[test]
fn a_check_allocates_nothing_whether_it_passes_or_not() {
    let limiter = Limiter::new(rules(), memory(), LimiterOptions::default());
    // The first check of a thread may set up what the thread keeps.
    assert!(
        limiter
            .check_at(&orders(), Timestamp::from_secs(1_000))
            .allowed()
    );
    let mut denied = 0;
    let counted = allocation_counter::measure(|| {
        for n in 0..1_000 {
            let now = Timestamp::from_micros(1_000_000_000 + n * 1_000);
            denied += u32::from(!limiter.check_at(&orders(), now).allowed());
        }
    });
    assert_eq!(counted.count_total, 0);
    assert!(denied > 900, "both outcomes are measured: {denied} denied");
}

/// A store that has decided, but says so later.
#[derive(Debug)]
struct Later(MemoryStore);

impl Store for Later {
    type Ticket = Ready<Result<Verdicts, StoreError>>;

    fn decide(&self, request: &Request<'_>) -> Answer<Self::Ticket> {
        Answer::Pending(ready(Ok(self.0.decide_now(request))))
    }
}

#[test]
fn a_check_that_waits_keeps_its_request_and_allocates_once() {
    let limiter = Limiter::new(rules(), Later(memory()), LimiterOptions::default());
    let endpoint = String::from("POST /orders");
    let ask = || {
        let mut check = Check::new("api");
        check.push([("api_key", "abc"), ("endpoint", &*endpoint)]);
        let now = limiter.clock().now();
        match limiter.ask(&check, now, |_| ()) {
            Answer::Pending(pending) => pending,
            Answer::Decided(()) => panic!("it answers later"),
        }
    };
    let finish = |pending| {
        let read = limiter.finish(pending, |ruling| {
            ruling.descriptors.map(|it| it.entries.len()).sum::<usize>()
        });
        match pin!(read).poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(entries) => entries,
            Poll::Pending => panic!("the store has decided"),
        }
    };
    assert_eq!(finish(ask()), 2);
    let counted = allocation_counter::measure(|| {
        assert_eq!(finish(ask()), 2);
    });
    assert_eq!(counted.count_total, 1);
}
