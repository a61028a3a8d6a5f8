use std::future::{Pending, pending};

use ratekeeper_core::Regions;
use ratekeeper_rules::{NodeRegion, Options, OwnCounters, RuleIndex, Source, load};
use ratekeeper_store::{Answer, Request, StoreError, Verdicts};

use super::*;
use crate::{Limiter, LimiterOptions, Snapshot};

/// A store as rules are compiled for it, which answers nothing.
#[derive(Clone, Copy)]
struct Place {
    leases: bool,
    is_cluster: bool,
    lends: bool,
}

/// The slot of the counters that a node keeps for itself.
const OWN: StoreSlot = StoreSlot(7);

impl Store for Place {
    type Ticket = Pending<Result<Verdicts, StoreError>>;

    fn decide(&self, _: &Request<'_>) -> Answer<Self::Ticket> {
        Answer::Pending(pending())
    }

    fn slot(&self, name: &str) -> StoreSlot {
        StoreSlot(u8::from(name == "second"))
    }

    fn leases(&self, slot: StoreSlot) -> bool {
        self.leases && slot != OWN
    }

    fn is_cluster(&self, _: StoreSlot) -> bool {
        self.is_cluster
    }

    fn lends(&self, slot: StoreSlot) -> bool {
        self.lends && slot != OWN
    }

    fn own_slot(&self) -> Option<StoreSlot> {
        Some(OWN)
    }
}

const RULES: &str = "
domain: d
descriptors:
  - { key: leased, rate_limit: { window: 24h, limit: 1000, algorithm: fixed_window, consistency: leased } }
  - { key: synced, rate_limit: { window: 24h, limit: 1000, algorithm: fixed_window, consistency: synced, sync_interval: 100ms } }
  - { key: local, rate_limit: { window: 24h, limit: 1000, algorithm: fixed_window, consistency: local } }
  - { key: each, store: second, rate_limit: { window: 24h, limit: 1000, algorithm: fixed_window } }
  - { key: all, value: one, rate_limit: { window: 24h, limit: 1000, algorithm: fixed_window } }
  - { key: all, value: exact, rate_limit: { window: 24h, limit: 1000, algorithm: fixed_window, consistency: exact } }
  - { key: all, value: counted, rate_limit: { window: 24h, limit: 1000, algorithm: fixed_window, count_denied: true } }
  - { key: all, value: quota, quota_mode: true, rate_limit: { window: 24h, limit: 1000, algorithm: fixed_window } }
";

fn limiter(place: Place) -> Limiter<Place> {
    limiter_of(RULES, &Options::default(), place)
}

#[test]
fn counters_of_a_node_alone_are_apart_where_others_are_shared() {
    let place = Place {
        leases: false,
        is_cluster: false,
        lends: false,
    };
    assert_eq!(limiter(place).own_counters(), OwnCounters::Apart);
}

fn limiter_of(text: &str, options: &Options, place: Place) -> Limiter<Place> {
    let source = Source {
        name: "d.yaml".to_owned(),
        text: text.to_owned(),
    };
    let loaded = load(&[source], options);
    let rules = loaded.unwrap_or_else(|refused| panic!("{refused}")).rules;
    Limiter::new(rules, place, LimiterOptions::default())
}

/// The ids of the rules of which `is_so` is true.
fn ids(snapshot: &Snapshot, is_so: impl Fn(&Compiled, &CompiledLimit) -> bool) -> Vec<&str> {
    let rules = (0..).map(RuleIndex).zip(snapshot.rules().rules());
    let ids = rules.filter_map(|(index, rule)| {
        let made = snapshot.compiled(index);
        let limit = made.limit.as_ref()?;
        is_so(made, limit).then_some(&*rule.id)
    });
    ids.collect()
}

#[test]
fn counters_are_leased_and_synced_where_the_store_does_that() {
    for (leases, is_cluster, leased, synced) in [
        (false, true, &[][..], &[][..]),
        (true, false, &["d.leased"], &["d.synced"]),
        (true, true, &["d.leased", "d.all_one"], &["d.synced"]),
    ] {
        let limiter = limiter(Place {
            leases,
            is_cluster,
            lends: false,
        });
        let snapshot = limiter.snapshot();
        assert_eq!(ids(&snapshot, |_, limit| !limit.lease.is_zero()), leased);
        assert_eq!(ids(&snapshot, |_, limit| !limit.sync.is_zero()), synced);
        let interval = Micros::from_millis(100);
        let is_set = |_: &Compiled, limit: &CompiledLimit| limit.sync == interval;
        assert_eq!(ids(&snapshot, is_set), synced);
        let unasked = snapshot.leased_by_default().map(|rule| &*rule.id);
        let expected = leased.iter().copied().filter(|rule| *rule != "d.leased");
        assert!(unasked.eq(expected), "{leases} {is_cluster}");
    }
}

#[test]
fn rules_have_the_slot_of_their_store_or_of_the_node() {
    let limiter = limiter(Place {
        leases: true,
        is_cluster: false,
        lends: false,
    });
    let snapshot = limiter.snapshot();
    let of = |slot: StoreSlot| ids(&snapshot, |made, _| made.store == slot);
    assert_eq!(of(OWN), ["d.local"]);
    assert_eq!(of(StoreSlot(1)), ["d.each"]);
    assert_eq!(of(StoreSlot(0)).len(), 6);
}

const SHARED: &str = "
domain: d
descriptors:
  - { key: each, rate_limit: { window: 24h, limit: 1000, algorithm: fixed_window, regions: regional } }
  - { key: lent, rate_limit: { window: 24h, limit: 1000, algorithm: fixed_window, regions: bounded } }
  - { key: more, rate_limit: { window: 24h, limit: 2000, algorithm: fixed_window, regions: bounded } }
  - { key: all, rate_limit: { window: 24h, limit: 1000, algorithm: fixed_window, regions: counted } }
";

/// A store that keeps nothing of what regions say leaves each region its share.
#[test]
fn regions_count_a_limit_together_where_the_store_keeps_what_they_say() {
    let regions = [("eu", 3), ("us", 1)].map(|(name, weight)| (name.into(), weight));
    let regions = Regions::try_new("us", 1, regions).expect("valid regions");
    let mut options = Options::default();
    options.region = NodeRegion::In(Arc::new(regions));
    for (lends, quotas) in [(true, [250, 250, 500, 1000]), (false, [250, 250, 500, 250])] {
        let place = Place {
            leases: true,
            is_cluster: false,
            lends,
        };
        let limiter = limiter_of(SHARED, &options, place);
        let snapshot = limiter.snapshot();
        let made = (0..4).map(|index| snapshot.compiled(RuleIndex(index)).limit.as_ref());
        let limits: Vec<_> = made.map(|made| made.expect("it limits")).collect();
        let told: Vec<_> = limits.iter().map(|made| made.delayed().quota()).collect();
        assert_eq!(told, quotas, "{lends}");
        // Other terms for each limit, and none where regions do not speak of it.
        let mut terms: Vec<_> = snapshot.lent().map(|lent| lent.terms).collect();
        terms.sort_unstable();
        terms.dedup();
        assert_eq!(terms.len(), if lends { 3 } else { 0 });
    }
}

/// The store still has the counters of the rule that had it.
#[test]
fn a_rule_that_a_reload_adds_has_no_number_of_one_that_it_removes() {
    let place = Place {
        leases: false,
        is_cluster: false,
        lends: false,
    };
    let text = |key: &str| {
        format!(
            "
domain: d
descriptors:
  - {{ key: kept, rate_limit: {{ window: 24h, limit: 1000 }} }}
  - {{ key: {key}, rate_limit: {{ window: 24h, limit: 1000 }} }}
"
        )
    };
    let limiter = limiter_of(&text("flooded"), &Options::default(), place);
    let slots = |limiter: &Limiter<Place>| {
        let snapshot = limiter.snapshot();
        [RuleIndex(0), RuleIndex(1)].map(|index| snapshot.compiled(index).slot)
    };
    let [kept, flooded] = slots(&limiter);
    let mut had = vec![kept, flooded];
    for key in ["first", "second"] {
        let source = Source {
            name: "d.yaml".to_owned(),
            text: text(key),
        };
        limiter.replace_rules(load(&[source], &Options::default()).unwrap().rules);
        let [still, added] = slots(&limiter);
        assert_eq!(still, kept);
        assert!(!had.contains(&added), "{key}: {added:?} of {had:?}");
        had.push(added);
    }
}

/// The counters that were saved are those of its rules.
#[test]
fn rules_have_the_slots_again_that_they_had_when_counters_were_saved() {
    let place = Place {
        leases: false,
        is_cluster: false,
        lends: false,
    };
    let text = |keys: &[&str]| {
        let rules = keys.iter().map(|key| {
            format!("  - {{ key: {key}, rate_limit: {{ window: 24h, limit: 1000 }} }}\n")
        });
        format!("domain: d\ndescriptors:\n{}", rules.collect::<String>())
    };
    let before = limiter_of(&text(&["a", "gone", "b"]), &Options::default(), place);
    let saved = before.snapshot().slots().clone();
    let slots = |limiter: &Limiter<Place>| {
        let snapshot = limiter.snapshot();
        let rules = snapshot.rules().rules().iter().zip(0..);
        let slots = rules.map(|(rule, index)| {
            (
                rule.id.to_string(),
                snapshot.compiled(RuleIndex(index)).slot.0,
            )
        });
        slots.collect::<Vec<_>>()
    };
    let text = text(&["new", "b", "a"]);
    let after = limiter_of(&text, &Options::default(), place).with_slots(saved);
    let expected = [("d.new", 3), ("d.b", 2), ("d.a", 0)];
    let expected: Vec<_> = expected.map(|(id, slot)| (id.to_owned(), slot)).into();
    assert_eq!(slots(&after), expected);
    let source = Source {
        name: "d.yaml".to_owned(),
        text,
    };
    after.replace_rules(load(&[source], &Options::default()).unwrap().rules);
    assert_eq!(slots(&after), expected, "after a reload");
}
