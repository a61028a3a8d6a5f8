//! A limiter whose store is somewhere else: it may be away, and it has a clock of its own.

use std::future::{Ready, ready};
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll, Waker};

use ratekeeper_core::{Micros, Mode, Timestamp};
use ratekeeper_limiter::{
    Acquired, Check, Fallback, FallbackConfig, HoldError, Limiter, LimiterOptions, Reserve,
    Reserved,
};
use ratekeeper_rules::{Options, RuleSet, Source, load};
use ratekeeper_store::memory::{MemoryConfig, MemoryStore};
use ratekeeper_store::{Answer, Post, Request, Store, StoreError, Verdicts};

const RULES: &str = "
domain: d
descriptors:
  - key: user
    rate_limit: { window: 10000d, limit: 100, algorithm: fixed_window }
  - key: job
    concurrency: { limit: 2, timeout: 60s }
  - key: strict
    on_store_failure: deny
    concurrency: { limit: 2, timeout: 60s }
";

/// The timeout of the permits.
const TIMEOUT: Micros = Micros::from_secs(60);

/// A store that can be away, whose clock is ahead of the node's.
#[derive(Debug)]
struct Apart {
    inner: MemoryStore,
    is_away: AtomicBool,
    ahead_us: AtomicU64,
    /// Hits that were posted to it.
    posted: AtomicU64,
}

impl Store for Apart {
    type Ticket = Ready<Result<Verdicts, StoreError>>;

    fn decide(&self, request: &Request<'_>) -> Answer<Self::Ticket> {
        if self.is_away.load(Ordering::Relaxed) {
            return Answer::Pending(ready(Err(StoreError::Unavailable)));
        }
        let ahead = Micros::new(self.ahead_us.load(Ordering::Relaxed));
        Answer::Decided(self.inner.decide_now(&Request {
            now: request.now.after(ahead),
            ..*request
        }))
    }

    fn away(&self) -> Option<StoreError> {
        let is_away = self.is_away.load(Ordering::Relaxed);
        is_away.then_some(StoreError::Unavailable)
    }

    fn post(&self, post: &Post) -> Option<Self::Ticket> {
        if let Some(why) = self.away() {
            return Some(ready(Err(why)));
        }
        let hits = post.step.hits.unsigned_abs();
        self.posted.fetch_add(hits, Ordering::Relaxed);
        // These verdicts are not read.
        let nothing = Request::new(&[], Mode::default(), Timestamp::from_micros(0));
        Some(ready(Ok(self.inner.decide_now(&nothing))))
    }
}

fn rules() -> RuleSet {
    let source = Source {
        name: "rules.yaml".to_owned(),
        text: RULES.to_owned(),
    };
    match load(&[source], &Options::default()) {
        Ok(loaded) => loaded.rules,
        Err(refused) => panic!("{refused}"),
    }
}

fn limiter() -> Limiter<Apart> {
    let memory = MemoryConfig {
        memory_limit: MemoryConfig::LEAST,
        ..MemoryConfig::default()
    };
    let store = Apart {
        inner: MemoryStore::new(memory).expect("the least store"),
        is_away: AtomicBool::new(false),
        ahead_us: AtomicU64::new(0),
        posted: AtomicU64::new(0),
    };
    let config = FallbackConfig {
        memory,
        local_factor: 1.0,
    };
    let fallback = Fallback::new(config).expect("the least store");
    Limiter::new(rules(), store, LimiterOptions::default()).with_fallback(fallback)
}

fn away(limiter: &Limiter<Apart>, is_away: bool) {
    limiter.store().is_away.store(is_away, Ordering::Relaxed);
}

fn ahead(limiter: &Limiter<Apart>, ahead: Micros) {
    let place = &limiter.store().ahead_us;
    place.store(ahead.get(), Ordering::Relaxed);
}

/// Resolves a future that never has to wait here.
fn now<T>(future: impl Future<Output = T>) -> T {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(value) => value,
        Poll::Pending => panic!("this store answers at once"),
    }
}

fn with<T>(key: &str, hits: i64, ask: impl FnOnce(&Check<'_>) -> T) -> T {
    ask(&Check::new("d").descriptor([(key, "v")]).hits(hits))
}

fn acquire(limiter: &Limiter<Apart>, rule: &str, key: Option<&str>) -> Result<Acquired, HoldError> {
    with(rule, 1, |check| {
        now(limiter.caller("me").acquire(check, key))
    })
}

fn reserve(limiter: &Limiter<Apart>, hits: u32, key: Option<&str>) -> Reserved {
    let reserved = with("user", i64::from(hits), |check| {
        let reserve = Reserve {
            hits: u64::from(hits),
            fixed: &[],
            ttl: TIMEOUT,
            key,
        };
        now(limiter.caller("me").reserve(check, &reserve))
    });
    reserved.expect("reserved or denied")
}

/// A permit taken from the node alone could not be released: the third would be denied though the
/// first two are over.
#[test]
fn permits_are_not_counted_while_the_store_is_away() {
    let limiter = limiter();
    away(&limiter, true);
    for _ in 0..5 {
        let acquired = acquire(&limiter, "job", None).expect("an answer");
        assert!(acquired.decision.allowed() && acquired.decision.is_degraded());
        assert_eq!(acquired.permit, None);
        let strict = acquire(&limiter, "strict", None).expect("an answer");
        assert!(!strict.decision.allowed() && strict.permit.is_none());
    }
    away(&limiter, false);
    let acquired = acquire(&limiter, "job", None).expect("an answer");
    assert!(acquired.decision.allowed() && acquired.permit.is_some());
}

/// Hits that passed uncounted cannot be given back, and settling them says so.
#[test]
fn what_was_reserved_while_the_store_was_away_gives_nothing_back() {
    let limiter = limiter();
    away(&limiter, true);
    let settled = [true, false].map(|is_commit| {
        let reserved = reserve(&limiter, 10, None);
        assert!(reserved.decision.allowed() && reserved.decision.is_degraded());
        let token = reserved.reservation.expect("allowed").token;
        away(&limiter, false);
        let settled = match is_commit {
            true => now(limiter.caller("me").commit(&token, 4)),
            false => now(limiter.caller("me").cancel(&token)),
        };
        away(&limiter, true);
        settled.expect("it is ours")
    });
    for settled in settled {
        assert_eq!((settled.given_back, settled.limits), (0, 0));
    }
}

fn held(acquired: Result<Acquired, HoldError>) -> Option<(String, Micros)> {
    let permit = acquired.expect("carried out").permit?;
    Some((permit.token, permit.expires_after))
}

/// An expired permit is not returned again: its place may be somebody else's.
#[test]
fn a_key_whose_permit_is_over_takes_none() {
    let limiter = limiter();
    let (first, _) = held(acquire(&limiter, "job", Some("k"))).expect("the first of two");
    assert!(
        now(limiter.caller("me").release(&first))
            .expect("ours")
            .was_held
    );
    for _ in 0..2 {
        held(acquire(&limiter, "job", None)).expect("two are free");
    }
    let spent = acquire(&limiter, "job", Some("k")).map(|acquired| acquired.permit);
    assert_eq!(spent, Err(HoldError::KeySpent));
    ahead(&limiter, TIMEOUT);
    held(acquire(&limiter, "job", Some("other"))).expect("those are over");
    ahead(&limiter, Micros::from_secs(120));
    let late = acquire(&limiter, "job", Some("other")).map(|acquired| acquired.permit);
    assert_eq!(late, Err(HoldError::KeySpent));
}

/// A caller that lost the answer holds the permit as long as one that got it at once.
#[test]
fn a_repeat_renews_the_permit() {
    let limiter = limiter();
    let first = held(acquire(&limiter, "job", Some("k"))).expect("the first of two");
    for seconds in [50, 100] {
        ahead(&limiter, Micros::from_secs(seconds));
        assert_eq!(
            held(acquire(&limiter, "job", Some("k"))),
            Some(first.clone())
        );
    }
    held(acquire(&limiter, "job", None)).expect("the second of two");
    assert_eq!(held(acquire(&limiter, "job", None)), None);
}

/// Deadlines follow the store's clock, not the node's.
#[test]
fn deadlines_are_told_by_the_clock_of_the_store() {
    let limiter = limiter();
    ahead(&limiter, Micros::from_secs(30));
    let (_, expires_after) = held(acquire(&limiter, "job", None)).expect("the first of two");
    assert_eq!(expires_after, TIMEOUT);
    let expires_after = |key| {
        let reserved = reserve(&limiter, 1, key).reservation;
        reserved.expect("allowed").expires_after
    };
    assert_eq!(expires_after(None), TIMEOUT);
    assert_eq!(expires_after(Some("k")), TIMEOUT);
    // The rest of the first one's minute, and the test does not take a second.
    ahead(&limiter, Micros::from_secs(50));
    let left = expires_after(Some("k"));
    assert!(left <= Micros::from_secs(40) && !left.is_zero(), "{left:?}");
}

/// A fresh key is not taken for an expired one if the node's clock is behind.
#[test]
fn keys_are_known_by_the_clock_of_the_store() {
    let limiter = limiter();
    ahead(&limiter, Micros::from_secs(3_600));
    let first = reserve(&limiter, 1, Some("k"));
    let again = reserve(&limiter, 1, Some("k"));
    assert_eq!((first.is_repeat, again.is_repeat), (false, true));
    let token = |reserved: Reserved| reserved.reservation.map(|it| it.token);
    assert_eq!(token(first), token(again));
    assert!(held(acquire(&limiter, "job", Some("k"))).is_some());
}

/// A node that stops has a moment in which its store may come back: until then, nothing is given up.
#[test]
fn what_is_owed_is_posted_by_a_flush_once_the_store_is_back() {
    let limiter = limiter();
    away(&limiter, true);
    for _ in 0..3 {
        assert!(with("user", 1, |check| now(limiter.check(check))).allowed());
    }
    assert!(limiter.flush_owed(), "it is still owed");
    assert_eq!(limiter.owed().owed, 3);
    away(&limiter, false);
    let begun = std::time::Instant::now();
    while limiter.flush_owed() {
        assert!(begun.elapsed().as_secs() < 60, "{:?}", limiter.owed());
        std::thread::yield_now();
    }
    assert_eq!(limiter.store().posted.load(Ordering::Relaxed), 3);
    assert_eq!(limiter.owed().posted, 3);
}

#[test]
fn a_node_alone_goes_on_from_what_the_store_last_told() {
    let limiter = limiter();
    let ask = |hits| with("user", hits, |check| now(limiter.check(check)).allowed());
    assert!(ask(97));
    away(&limiter, true);
    let passed = (0..10).filter(|_| ask(1)).count();
    assert_eq!(passed, 3);
}
