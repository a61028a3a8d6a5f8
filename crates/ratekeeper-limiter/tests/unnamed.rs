//! Hits that pass before the store has told the hash key are posted under the names that it gives then.

use std::future::{Ready, ready};
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, Waker};

use parking_lot::Mutex;
use ratekeeper_core::{Mode, Timestamp};
use ratekeeper_limiter::{
    Check, Decision, Fallback, FallbackConfig, Limiter, LimiterOptions, Override,
};
use ratekeeper_rules::{Options, Source, Unit, load};
use ratekeeper_store::memory::{MemoryConfig, MemoryStore};
use ratekeeper_store::{Answer, CounterKey, HashKey, Post, Request, Store, StoreError, Verdicts};

/// Every way in which a counter gets its name.
const RULES: &str = "
domain: d
evaluation: path
tenant: key
plans: [free, pro]
descriptors:
- key: key
  rate_limit: { unit: day, limit: 300 }
  descriptors:
  - { key: endpoint, value: orders, rate_limit: { unit: day, limit: 200, algorithm: fixed_window } }
  - { key: parts, rate_limit: { unit: day, limit: 200, sub_windows: 12 } }
- { key: key, value: 'bot-*', share_threshold: true, rate_limit: { unit: day, limit: 200 } }
- { key: zone, rate_limit: { calendar: Europe/Vienna, unit: month, limit: 200 } }
tenants:
- { tenant: acme, overrides: [ { unit: day, limit: 150 }, { descriptor: 'region:eu', unit: day, limit: 20 } ] }
- { tenant: bot-7, overrides: [ { unit: day, limit: 90 } ] }
";

/// A store that tells its hash key late, and notes the counters that it is asked for and gets posts of.
#[derive(Debug)]
struct LateKey {
    inner: MemoryStore,
    hash_key: Mutex<Option<HashKey>>,
    asked: Mutex<Vec<CounterKey>>,
    posted: Mutex<Vec<(CounterKey, i64)>>,
    /// The times that it was to forget the counters in this node's memory.
    forgotten: AtomicU64,
}

impl Store for LateKey {
    type Ticket = Ready<Result<Verdicts, StoreError>>;

    fn decide(&self, request: &Request<'_>) -> Answer<Self::Ticket> {
        let hash_key = *self.hash_key.lock();
        if hash_key.is_none() || hash_key != request.named_by {
            return Answer::Pending(ready(Err(StoreError::Unavailable)));
        }
        let keys = request.steps.iter().map(|step| step.key);
        self.asked.lock().extend(keys);
        Answer::Decided(self.inner.decide_now(request))
    }

    fn hash_key(&self) -> Option<HashKey> {
        *self.hash_key.lock()
    }

    fn keeps_own(&self) -> bool {
        true
    }

    fn forget_own(&self) -> u64 {
        self.forgotten.fetch_add(1, Ordering::Relaxed);
        7
    }

    fn post(&self, post: &Post) -> Option<Self::Ticket> {
        let hash_key = *self.hash_key.lock();
        if hash_key.is_none() || hash_key != post.named_by {
            return Some(ready(Err(StoreError::Unavailable)));
        }
        self.posted.lock().push((post.step.key, post.step.hits));
        let nothing = Request::new(&[], Mode::default(), Timestamp::from_micros(0));
        Some(ready(Ok(self.inner.decide_now(&nothing))))
    }
}

fn limiter() -> Limiter<LateKey> {
    let memory = MemoryConfig {
        memory_limit: MemoryConfig::LEAST,
        ..MemoryConfig::default()
    };
    let source = Source {
        name: "rules.yaml".to_owned(),
        text: RULES.to_owned(),
    };
    let loaded = load(&[source], &Options::default());
    let rules = loaded.unwrap_or_else(|refused| panic!("{refused}")).rules;
    let store = LateKey {
        inner: MemoryStore::new(memory).expect("the least store"),
        hash_key: Mutex::default(),
        asked: Mutex::default(),
        posted: Mutex::default(),
        forgotten: AtomicU64::new(0),
    };
    let config = FallbackConfig {
        memory,
        local_factor: 1.0,
    };
    let fallback = Fallback::new(config).expect("the least store");
    Limiter::new(rules, store, LimiterOptions::default()).with_fallback(fallback)
}

fn check(limiter: &Limiter<LateKey>, pairs: &[(&str, &str)], own: Option<Override>) -> Decision {
    let mut check = Check::new("d");
    check.push(pairs).limit = own.map(Into::into);
    let mut checked = pin!(limiter.check(&check));
    match checked
        .as_mut()
        .poll(&mut Context::from_waker(Waker::noop()))
    {
        Poll::Ready(decision) => decision,
        Poll::Pending => panic!("the store answers at once"),
    }
}

/// The entries of a request, and a limit that it brings along.
type Asked = (Vec<(&'static str, &'static str)>, Option<Override>);

/// Requests, with a limit of their own or none.
fn requests() -> Vec<Asked> {
    let own = Override {
        quota: 50,
        unit: Unit::Day,
    };
    vec![
        (vec![("key", "other")], None),
        (vec![("key", "other"), ("endpoint", "orders")], None),
        (
            vec![("key", "other"), ("parts", "a value of many words")],
            None,
        ),
        (vec![("key", "bot-1")], None),
        (vec![("key", "bot-7")], None),
        (vec![("key", "acme"), ("region", "eu")], None),
        (vec![("zone", "")], None),
        (vec![("anything", "at all"), ("key", "x")], Some(own)),
        (vec![], Some(own)),
    ]
}

#[test]
fn hits_that_passed_before_the_hash_key_was_known_are_posted_to_the_counters_that_all_nodes_use() {
    let limiter = limiter();
    for (pairs, own) in requests() {
        let decision = check(&limiter, &pairs, own);
        assert!(decision.allowed() && decision.is_degraded(), "{pairs:?}");
    }
    assert!(limiter.flush_owed(), "no store takes it yet");
    assert!(limiter.store().posted.lock().is_empty());
    let owed = limiter.owed();
    *limiter.store().hash_key.lock() = Some(HashKey::from_bytes([9; 16]));
    limiter.adopt_hash_key(HashKey::from_bytes([9; 16]));
    let begun = std::time::Instant::now();
    while limiter.flush_owed() {
        assert!(begun.elapsed().as_secs() < 60, "{:?}", limiter.owed());
        std::thread::yield_now();
    }
    for (pairs, own) in requests() {
        assert!(!check(&limiter, &pairs, own).is_degraded(), "{pairs:?}");
    }
    let mut posted = limiter.store().posted.lock().clone();
    let mut asked = limiter.store().asked.lock().clone();
    assert!(asked.len() >= requests().len(), "{asked:?}");
    posted.sort_unstable();
    asked.sort_unstable();
    let asked: Vec<_> = asked
        .chunk_by(|one, other| one == other)
        .map(|same| (same[0], i64::try_from(same.len()).expect("few")))
        .collect();
    assert_eq!(posted, asked);
    let counts = limiter.owed();
    assert_eq!((counts.posted, counts.dropped), (owed.owed, 0));
}

/// Under a key that was known, no unhashed names are kept: a service that gets another one starts over, and says so.
#[test]
fn hits_under_a_hash_key_that_was_replaced_are_dropped_and_counted() {
    let limiter = limiter();
    limiter.adopt_hash_key(HashKey::from_bytes([8; 16]));
    assert!(check(&limiter, &[("key", "other")], None).allowed());
    *limiter.store().hash_key.lock() = Some(HashKey::from_bytes([9; 16]));
    limiter.adopt_hash_key(HashKey::from_bytes([9; 16]));
    while limiter.flush_owed() {
        std::thread::yield_now();
    }
    let counts = limiter.owed();
    assert_eq!((counts.owed, counts.dropped, counts.expired), (1, 1, 0));
}

/// To forget a memory full of counters takes seconds, in which the thread that serves would serve nobody.
#[test]
fn no_request_forgets_what_the_node_keeps_and_failure_modes_answer_until_the_key_is_adopted() {
    let limiter = limiter();
    let store = limiter.store();
    let forgotten = || (store.forgotten.load(Ordering::Relaxed), limiter.forgotten());
    let key = HashKey::from_bytes([9; 16]);
    *store.hash_key.lock() = Some(key);
    for _ in 0..2 {
        let decision = check(&limiter, &[("key", "other")], None);
        assert!(decision.allowed() && decision.is_degraded());
        assert_eq!(forgotten(), (0, 0), "by a request");
    }
    limiter.adopt_hash_key(key);
    assert_eq!(forgotten(), (1, 7));
    assert!(!check(&limiter, &[("key", "other")], None).is_degraded());
    while limiter.flush_owed() {
        std::thread::yield_now();
    }
    let counts = limiter.owed();
    assert_eq!((counts.posted, counts.dropped), (2, 0));
    limiter.adopt_hash_key(key);
    assert_eq!(forgotten(), (1, 7), "it is the same key");
}
