//! Limits that regions share: each limiter is one region, with a store of its own.

use std::sync::Arc;

use ratekeeper_core::{Regions, Timestamp};
use ratekeeper_limiter::{Check, Limiter, LimiterOptions};
use ratekeeper_rules::{NodeRegion, Options, Source, load};
use ratekeeper_store::memory::{MemoryConfig, MemoryStore};

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

fn region(own: &str) -> Limiter<MemoryStore> {
    let all = [("eu", 2), ("us", 1)].map(|(name, weight)| (name.into(), weight));
    let regions = Regions::try_new(own, 1, all).expect("valid regions");
    let mut options = Options::default();
    options.region = NodeRegion::In(Arc::new(regions));
    let source = Source {
        name: "rules.yaml".to_owned(),
        text: RULES.to_owned(),
    };
    let rules = load(&[source], &options).expect("valid rules").rules;
    let store = MemoryStore::new(MemoryConfig::default()).expect("the default store");
    Limiter::new(rules, store, LimiterOptions::default())
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
