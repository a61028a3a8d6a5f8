//! A check that fits its inline buffers allocates nothing.

use ratekeeper_core::Timestamp;
use ratekeeper_limiter::{Check, Descriptor, Limiter, LimiterOptions, Waiting};
use ratekeeper_rules::{Entry, Options, Source, load};
use ratekeeper_store::memory::{MemoryConfig, MemoryStore};

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

#[test]
fn a_check_allocates_nothing_whether_it_passes_or_not() {
    let source = Source {
        name: "rules.yaml".to_owned(),
        text: RULES.to_owned(),
    };
    let loaded = load(&[source], &Options::default()).expect("the rules above");
    let store = MemoryStore::new(MemoryConfig::default()).expect("the default store");
    let limiter = Limiter::new(loaded.rules, store, LimiterOptions::default());
    let caller = [Entry {
        key: "api_key",
        value: "abc",
    }];
    let endpoint = [
        caller[0],
        Entry {
            key: "endpoint",
            value: "POST /orders",
        },
    ];
    let descriptors = [Descriptor::new(&caller), Descriptor::new(&endpoint)];
    let check = Check {
        domain: "api",
        descriptors: &descriptors,
        waiting: Waiting::Cannot,
        observer: None,
    };

    // The first check of a thread may set up what the thread keeps.
    assert!(
        limiter
            .check_at(&check, Timestamp::from_secs(1_000))
            .allowed()
    );
    let mut denied = 0;
    let counted = allocation_counter::measure(|| {
        for n in 0..1_000 {
            let now = Timestamp::from_micros(1_000_000_000 + n * 1_000);
            denied += u32::from(!limiter.check_at(&check, now).allowed());
        }
    });
    assert_eq!(counted.count_total, 0);
    assert!(denied > 900, "both outcomes are measured: {denied} denied");
}
