//! Limits that regions share: each limiter is one region, with a store of its own.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use parking_lot::Mutex;
use ratekeeper_core::{Micros, Regions, Timestamp};
use ratekeeper_limiter::{Check, Limiter, LimiterOptions, ReceiptMode, Reserve};
use ratekeeper_rules::{NodeRegion, Options, RuleSet, Source, load};
use ratekeeper_store::memory::{MemoryConfig, MemoryStore};
use ratekeeper_store::{Answer, Never, Request, Step, Store, StoreSlot};

use crate::support::{START, ask};

const RULES: &str = "
domain: d
regions: regional
descriptors:
  - key: fixed
    rate_limit: { unit: minute, requests_per_unit: 100, algorithm: fixed_window }
  - key: sliding
    rate_limit: { unit: minute, requests_per_unit: 100 }
  - key: bucket
    rate_limit: { unit: minute, requests_per_unit: 100, burst: 31, algorithm: token_bucket }
  - key: debt
    rate_limit: { unit: minute, requests_per_unit: 60, burst: 30, algorithm: token_bucket, post_paid: true }
";

/// Limits that move between regions.
const MOVING: &str = "
domain: d
descriptors:
  - key: lent
    rate_limit: { unit: minute, requests_per_unit: 600, algorithm: token_bucket, regions: bounded }
  - key: counted
    rate_limit: { unit: minute, requests_per_unit: 600, algorithm: fixed_window, regions: counted }
";

fn region(own: &str) -> Limiter<MemoryStore> {
    let store = MemoryStore::new(MemoryConfig::default()).expect("the default store");
    Limiter::new(rules_in(own, RULES), store, LimiterOptions::default())
}

fn rules_in(own: &str, text: &str) -> RuleSet {
    let all = [("eu", 2), ("us", 1)].map(|(name, weight)| (name.into(), weight));
    let regions = Regions::try_new(own, 1, all).expect("valid regions");
    let mut options = Options::default();
    options.region = NodeRegion::In(Arc::new(regions));
    let source = Source {
        name: "rules.yaml".to_owned(),
        text: text.to_owned(),
    };
    load(&[source], &options).expect("valid rules").rules
}

/// A store that keeps what other regions say, and the steps that it was asked.
struct Sharing {
    memory: MemoryStore,
    asked: Mutex<Vec<Step>>,
}

impl Store for Sharing {
    type Ticket = Never;

    fn decide(&self, request: &Request<'_>) -> Answer<Never> {
        self.asked.lock().extend(request.steps);
        self.memory.decide(request)
    }

    fn lends(&self, _: StoreSlot) -> bool {
        true
    }
}

/// Resolves a future at once: the store never waits.
fn now<T>(future: impl Future<Output = T>) -> T {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(value) => value,
        Poll::Pending => panic!("the store decides at once"),
    }
}

#[test]
fn all_regions_together_admit_the_limit_and_no_more() {
    let regions = ["eu", "us"].map(region);
    for (key, parts) in [
        ("fixed", [67, 33]),
        ("sliding", [67, 33]),
        ("bucket", [21, 10]),
    ] {
        let admitted = regions.each_ref().map(|region| {
            let asked = (0..120).filter(|_| ask(region, &[(key, "a")]).allowed());
            asked.count()
        });
        assert_eq!(admitted, parts, "{key}");
    }
}

#[test]
fn callers_are_told_the_whole_limit_and_what_is_left_here() {
    let us = region("us");
    let decision = ask(&us, &[("fixed", "a")]);
    let status = decision.limit_status().expect("a limit");
    assert_eq!((status.limit, status.remaining), (100, 32));
    let check = Check::new("d").descriptor([("fixed", "a")]);
    let now = Timestamp::from_secs(START);
    let policies = us.ask_at(&check, now, |ruling| ruling.policies());
    assert_eq!(policies[0].ceiling, 100);
    // More hits than this region ever has are refused for good.
    let mut check = Check::new("d");
    check.push([("fixed", "b")]).hits = 34;
    let refused = us.check_at(&check, now);
    assert!(!refused.allowed());
    assert_eq!(refused.limit_status().expect("a limit").retry_after, None);
}

#[test]
fn the_debt_is_that_of_this_region_s_bucket() {
    let us = region("us");
    let mut check = Check::new("d");
    check.push([("debt", "a")]).hits = 15;
    let decision = us.check_at(&check, Timestamp::from_secs(START));
    // A third of the burst of 30 was there.
    assert_eq!(decision.limit_status().expect("a limit").debt, 5);
}

#[test]
fn an_explanation_says_what_the_region_enforces() {
    let eu = region("eu");
    let explained = eu.explain_now(&Check::new("d").descriptor([("fixed", "a")]));
    let limit = &explained.descriptors[0].nodes[0].limits[0];
    assert_eq!(limit.limit.split(',').next(), Some("100 per 1m"));
    let note = limit.note.as_deref().expect("a note");
    assert_eq!(
        note,
        "region eu enforces 67 (weights version 1: eu 2, us 1)"
    );
    assert_eq!(limit.remaining, Some(67));
}

/// Otherwise the store would fill a bucket by all that the region owns, whatever it has lent of that.
#[test]
fn what_is_given_back_has_the_terms_on_which_it_was_taken() {
    let sharing = Sharing {
        memory: MemoryStore::new(MemoryConfig::default()).expect("the default store"),
        asked: Mutex::default(),
    };
    let rules = rules_in("eu", MOVING);
    let limiter = Limiter::new(rules, sharing, LimiterOptions::default());
    let asked = || std::mem::take(&mut *limiter.store().asked.lock());
    for key in ["lent", "counted"] {
        let check = Check::new("d").descriptor([(key, "a")]).hits(5);
        let reserve = Reserve {
            hits: 5,
            fixed: &[],
            ttl: Micros::from_secs(60),
            key: None,
        };
        let reserved = now(limiter.caller("me").reserve(&check, &reserve));
        let reservation = reserved.expect("there is room").reservation;
        let token = reservation.expect("allowed").token;
        now(limiter.caller("me").cancel(&token)).expect("ours");
        let admitted = limiter.admit(&check, limiter.clock().now(), ReceiptMode::Kept);
        let Answer::Decided(admitted) = admitted else {
            panic!("the store decides at once");
        };
        let receipt = admitted.receipt.expect("it is kept");
        assert!(receipt.give_back(&limiter).is_none());
        let asked = asked();
        let hits: Vec<i64> = asked.iter().map(|step| step.hits).collect();
        assert_eq!(hits, [5, -5, 5, -5], "{key}");
        let shared = |step: &Step| (step.terms, step.whole, step.counted, step.limit);
        assert!(asked[0].terms > 0, "{key}");
        assert!(
            asked.iter().all(|step| shared(step) == shared(&asked[0])),
            "{key}: {asked:?}"
        );
    }
}
