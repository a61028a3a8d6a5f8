//! A limiter with rules in YAML, and helpers to ask it.

use ratekeeper_core::Timestamp;
use ratekeeper_limiter::{Check, Decision, Limiter, LimiterOptions, Modes};
use ratekeeper_rules::{Options, Profile, RuleSet, Source, load};
use ratekeeper_store::memory::{MemoryConfig, MemoryStore};

pub(crate) const START: u64 = 1_700_000_040;

pub(crate) fn rules(yaml: &str) -> RuleSet {
    let source = Source {
        name: "rules.yaml".to_owned(),
        text: yaml.to_owned(),
    };
    match load(&[source], &Options::default()) {
        Ok(loaded) => loaded.rules,
        Err(refused) => panic!("{refused}"),
    }
}

pub(crate) fn limiter_with(yaml: &str, modes: Modes) -> Limiter<MemoryStore> {
    let store = MemoryStore::new(MemoryConfig::default()).expect("the default store");
    let mut options = LimiterOptions::default();
    options.modes = modes;
    Limiter::new(rules(yaml), store, options)
}

pub(crate) fn limiter_of_profile(yaml: &str, profile: Profile) -> Limiter<MemoryStore> {
    let store = MemoryStore::new(MemoryConfig::default()).expect("the default store");
    let mut options = LimiterOptions::default();
    options.profile = profile;
    Limiter::new(rules(yaml), store, options)
}

pub(crate) fn limiter(yaml: &str) -> Limiter<MemoryStore> {
    limiter_with(yaml, Modes::default())
}

pub(crate) type Pairs<'a> = &'a [(&'a str, &'a str)];

/// Asks for `hits` on every descriptor, `secs` after the start.
pub(crate) fn ask_all(
    limiter: &Limiter<MemoryStore>,
    lists: &[Pairs<'_>],
    hits: i64,
    secs: u64,
) -> Decision {
    let mut check = Check::new("d");
    for pairs in lists {
        check.push(*pairs).hits = hits;
    }
    limiter.check_at(&check, Timestamp::from_secs(START + secs))
}

pub(crate) fn ask(limiter: &Limiter<MemoryStore>, pairs: Pairs<'_>) -> Decision {
    ask_all(limiter, &[pairs], 1, 0)
}

pub(crate) fn passes(limiter: &Limiter<MemoryStore>, pairs: Pairs<'_>, times: u64) -> bool {
    (0..times).all(|_| ask(limiter, pairs).allowed())
}

pub(crate) const TWO_LEVELS: &str = "
descriptors:
  - key: tenant
    rate_limit: { unit: minute, requests_per_unit: 3, algorithm: fixed_window }
    descriptors:
      - key: endpoint
        value: orders
        rate_limit: { unit: minute, requests_per_unit: 2, algorithm: fixed_window }
";

pub(crate) const QUOTA_AND_RATE: &str = "
domain: d
descriptors:
  - key: spent
    quota_mode: true
    rate_limit: { unit: month, requests_per_unit: 1 }
  - key: fresh
    quota_mode: true
    rate_limit: { unit: month, requests_per_unit: 100 }
  - key: rate
    rate_limit: { window: 1s, limit: 1, algorithm: gcra }
";
