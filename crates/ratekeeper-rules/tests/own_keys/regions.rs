//! `regions`, the way in which regions share a limit.

use std::sync::Arc;

use ratekeeper_core::region::counted::Silent;
use ratekeeper_core::{Micros, Regions, Timestamp};
use ratekeeper_rules::{
    Dated, Entry, NodeRegion, Options, RegionMode, RuleSet, Source, TenantIndex, TenantKey,
    TenantOverride, TenantPlan, TenantQuotas, Term, load,
};

use crate::support::{errors, loaded_with};

/// The options of a node in `own`, of the regions ap (1), eu (2) and us (1).
fn options(own: &str) -> Options {
    let all = [("eu", 2), ("us", 1), ("ap", 1)];
    let all = all.map(|(name, weight)| (name.into(), weight));
    let regions = Regions::try_new(own, 3, all).expect("valid regions");
    let mut options = Options::default();
    options.region = NodeRegion::In(Arc::new(regions));
    options
}

pub(crate) fn rules(text: &str, own: &str) -> RuleSet {
    loaded_with(text, &options(own)).rules
}

/// The errors of a file in eu, each with its help.
pub(crate) fn refused(text: &str) -> Vec<String> {
    let source = Source {
        name: "f.yaml".to_owned(),
        text: text.to_owned(),
    };
    let refused = load(&[source], &options("eu")).expect_err("cannot be");
    let told = |error: &ratekeeper_rules::Diagnostic| {
        format!(
            "{}; {}",
            error.message,
            error.help.as_deref().unwrap_or_default()
        )
    };
    refused.errors().iter().map(told).collect()
}

/// The quotas of all rules, whole and as the region enforces them.
fn quotas(rules: &RuleSet) -> Vec<(u64, u64)> {
    let limits = rules.rules().iter();
    let limits = limits.filter_map(|rule| Some((rule.limited()?, rule.enforced()?)));
    limits
        .map(|(whole, part)| (whole.quota(), part.quota()))
        .collect()
}

const EVERYWHERE: &str = "domain: d
regions: regional
plans: [free, pro]
tenant: key
descriptors:
- key: key
  rate_limit: { window: 1m, limit: 601 }
  plans: { pro: { window: 1m, limit: 1000, algorithm: token_bucket, burst: 8 } }
  concurrency: { limit: 9 }
slas:
- { id: get, pathPattern: /a, tiers: [ { period: 10, threshold: 40 } ] }
";

#[test]
fn a_domain_shares_all_limits_of_its_file() {
    for (own, parts) in [
        ("ap", [150, 2, 250, 10]),
        ("eu", [301, 5, 500, 20]),
        ("us", [150, 2, 250, 10]),
    ] {
        let rules = rules(EVERYWHERE, own);
        let mut told = quotas(&rules);
        told.sort_unstable_by_key(|(whole, _)| {
            [601, 9, 1_000, 40].iter().position(|at| at == whole)
        });
        assert_eq!(
            told,
            [
                (601, parts[0]),
                (9, parts[1]),
                (1_000, parts[2]),
                (40, parts[3])
            ],
            "{own}"
        );
        let bucket = rules
            .rules()
            .iter()
            .find(|rule| rule.plan.as_deref() == Some("pro"));
        let share = bucket
            .and_then(|rule| rule.share.clone())
            .expect("it is shared");
        let burst = if own == "eu" { 4 } else { 2 };
        assert_eq!(share.limit.capacity(), burst);
    }
}

#[test]
fn the_share_is_told_in_words() {
    let text = "domain: d\ndescriptors: [ { key: k, rate_limit: { window: 1m, limit: 600, regions: regional } } ]\n";
    let rules = rules(text, "eu");
    let rule = &rules.rules()[0];
    assert_eq!(rule.regions, Some(RegionMode::Regional));
    assert_eq!(rule.quota_in_words(), "600 per 1m");
    let share = rule.share.as_ref().expect("it is shared").to_string();
    assert_eq!(
        share,
        "region eu enforces 300 (weights version 3: ap 1, eu 2, us 1)"
    );
}

#[test]
fn without_the_key_each_region_enforces_the_whole_limit() {
    let text = "domain: d\ndescriptors: [ { key: k, rate_limit: { window: 1m, limit: 2 } } ]\n";
    assert_eq!(quotas(&rules(text, "eu")), [(2, 2)]);
}

#[test]
fn a_node_without_a_region_refuses_rules_that_need_one() {
    let text = "domain: d\ndescriptors: [ { key: k, rate_limit: { window: 1m, limit: 600, regions: regional } } ]\n";
    let errors = errors(text);
    assert_eq!(errors.len(), 1);
    assert!(
        errors[0].contains("needs to know this node's region"),
        "{errors:?}"
    );
    // A check without settings does not know the region.
    let mut options = Options::default();
    options.region = NodeRegion::Unknown;
    let unknown = loaded_with(text, &options).rules;
    assert_eq!(quotas(&unknown), [(600, 600)]);
    assert_eq!(unknown.rules()[0].regions, Some(RegionMode::Regional));
}

#[test]
fn what_cannot_be_shared_is_refused_with_a_way_out() {
    let limit = |keys: &str| {
        let text = format!(
            "domain: d\ndescriptors: [ {{ key: k, rate_limit: {{ window: 1m, {keys} }} }} ]\n"
        );
        let refused = refused(&text);
        assert_eq!(refused.len(), 1, "{keys}: {refused:?}");
        refused[0].clone()
    };
    let small = limit("limit: 2, regions: regional");
    assert!(
        small.contains("2 cannot be split so that each region gets a hit: `us` would get none"),
        "{small}"
    );
    assert!(
        small.contains("; raise the limit, or write `regions: none`"),
        "{small}"
    );
    let burst = limit("limit: 100, burst: 1, algorithm: gcra, regions: regional");
    assert!(burst.contains("1 cannot be split"), "{burst}");
    for (keys, why) in [
        (
            "limit: 600, regions: counted",
            "a sliding_window is not counted together",
        ),
        (
            "limit: 600, algorithm: gcra, regions: counted",
            "a gcra is not counted together",
        ),
        (
            "limit: 600, algorithm: fixed_window, post_paid: true, regions: counted",
            "paid afterwards",
        ),
        (
            "limit: 600, sub_windows: 4, regions: bounded",
            "sub_windows cannot be lent",
        ),
        (
            "limit: 600, strict: true, regions: bounded",
            "change with a share that moves",
        ),
        (
            "limit: 600, algorithm: sliding_log, regions: bounded",
            "a sliding_log cannot be lent",
        ),
        (
            "limit: 600, algorithm: leaky_bucket, regions: bounded",
            "a leaky_bucket cannot be lent",
        ),
        (
            "limit: 600, burst: 50000000000, algorithm: gcra, regions: bounded",
            "cannot be computed exactly",
        ),
        (
            "limit: 600, algorithm: fixed_window, post_paid: true, regions: bounded",
            "paid afterwards",
        ),
    ] {
        let refused = limit(keys);
        assert!(refused.contains(why), "{refused}");
        assert!(refused.contains("write `regions: regional`"), "{refused}");
        let whole = "by its weight, or `regions: none`, with which each enforces the whole limit";
        assert!(refused.ends_with(whole), "{refused}");
    }
    let lent = "limit: 600, algorithm: fixed_window, regions: bounded";
    let synced = limit(&format!("{lent}, consistency: synced"));
    assert!(synced.ends_with("write `consistency: exact`"), "{synced}");
    let leased = limit("limit: 600, algorithm: gcra, consistency: leased, regions: bounded");
    assert!(
        leased.contains("could not charge what nodes hold"),
        "{leased}"
    );
    let denied = limit(&format!("{lent}, count_denied: true"));
    assert!(denied.ends_with("write `count_denied: false`"), "{denied}");
    let burst = limit("limit: 600, burst: 23, algorithm: token_bucket, regions: bounded");
    assert!(burst.contains("a burst of at least 24 here"), "{burst}");
    let few = limit("limit: 23, algorithm: fixed_window, regions: bounded");
    assert!(
        few.contains("a limit of at least 24 here, 8 for each region"),
        "{few}"
    );
    let counted = "limit: 600, algorithm: fixed_window, regions: counted";
    for consistency in ["synced", "local"] {
        let refused = limit(&format!("{counted}, consistency: {consistency}"));
        assert!(
            refused.contains("`regions: counted` is not possible with this"),
            "{refused}"
        );
        assert!(refused.ends_with("write `consistency: exact`"), "{refused}");
    }
    let denied = limit(&format!("{counted}, count_denied: true"));
    assert!(
        denied.contains("would use up the limit of all others"),
        "{denied}"
    );
    assert!(denied.ends_with("write `count_denied: false`"), "{denied}");
    for interval in ["99ms", "61s"] {
        let refused = limit(&format!(
            "{counted}, on_silence: alone, post_interval: {interval}"
        ));
        assert!(
            refused.contains("from 100ms to 60s; write `post_interval: 1s`"),
            "{refused}"
        );
    }
    let heard = limit(&format!("{counted}, post_interval: 999ms"));
    assert!(
        heard.contains("at least 1s with `on_silence: share`"),
        "{heard}"
    );
    let late = limit(&format!("{counted}, post_interval: 31s"));
    assert!(
        late.contains("31000 ms is more than half of the window"),
        "{late}"
    );
    let typo = limit(&format!("{counted}, on_silence: shere"));
    assert!(typo.ends_with("did you mean `share`?"), "{typo}");
    let typo = limit("limit: 600, regions: regionel");
    assert!(typo.ends_with("did you mean `regional`?"), "{typo}");
}

#[test]
fn of_a_limit_that_is_lent_the_region_owns_its_share() {
    let text = "domain: d\ndescriptors: [ { key: k, rate_limit: { window: 1m, limit: 600, algorithm: fixed_window, \
                regions: bounded } } ]\n";
    let rules = rules(text, "eu");
    let share = rules.rules()[0].share.as_ref().expect("it is shared");
    assert!(share.is_lent);
    let told = share.to_string();
    assert!(
        told.starts_with("region eu owns 300 (weights version"),
        "{told}"
    );
    // In each of three regions the hits of a group less one are not counted.
    let log = text.replace("algorithm: fixed_window, ", "");
    let told = self::rules(&log, "eu").rules()[0].in_words();
    assert!(told.ends_with("at most 111 more in any window"), "{told}");
    // A burst is the same part of the whole as what is owned, whatever moves.
    let bucket = text.replace("algorithm: fixed_window", "algorithm: gcra, burst: 35");
    let rules = self::rules(&bucket, "ap");
    let share = rules.rules()[0].share.as_ref().expect("it is shared");
    assert_eq!((share.limit.quota(), share.limit.capacity()), (150, 8));
}

#[test]
fn a_limit_that_is_counted_together_is_whole_in_each_region() {
    let text = "domain: d\ndescriptors: [ { key: k, rate_limit: { window: 1m, limit: 600, algorithm: fixed_window, \
                regions: counted } } ]\n";
    let share = |text: &str, own: &str| {
        let rules = rules(text, own);
        assert_eq!(quotas(&rules), [(600, 600)]);
        let rule = &rules.rules()[0];
        rule.share.clone().expect("it is shared")
    };
    let by_default = share(text, "eu");
    let counted = by_default.counted.expect("it is counted");
    assert_eq!(counted.interval, Micros::from_secs(1));
    assert_eq!(counted.silent, Silent::Share);
    assert!(!by_default.is_lent);
    assert_eq!(
        by_default.to_string(),
        "region eu counts with ap and us: about 600, and what others admit in 1.2 s; one that is silent counts with its \
         share (weights version 3: ap 1, eu 2, us 1)"
    );
    let alone = text.replace(
        "counted",
        "counted, on_silence: alone, post_interval: 250ms",
    );
    let alone = share(&alone, "ap");
    let counted = alone.counted.expect("it is counted");
    assert_eq!(counted.interval, Micros::from_millis(250));
    assert_eq!(counted.silent, Silent::Alone);
    assert!(
        alone
            .to_string()
            .ends_with("admit in 0.4 s; one that is silent counts as it last said"),
        "{alone}"
    );
    // What is too small to be divided can be counted.
    let small = text.replace("600", "1");
    assert_eq!(quotas(&rules(&small, "us")), [(1, 1)]);
    // All limits of a domain.
    let domain = "domain: d\nregions: counted\non_silence: alone\npost_interval: 100ms\nalgorithm: fixed_window\ndescriptors: [ \
                  { key: k, rate_limit: { window: 1m, limit: 600 } } ]\n";
    let counted = share(domain, "us").counted.expect("it is counted");
    assert_eq!(counted.interval, Micros::from_millis(100));
}

#[test]
fn keys_of_limits_that_are_counted_are_warned_of_elsewhere() {
    let text = "domain: d\ndescriptors: [ { key: k, rate_limit: { window: 1m, limit: 600, regions: regional, on_silence: \
                alone, post_interval: 5s } } ]\n";
    let loaded = loaded_with(text, &options("eu"));
    let told: Vec<_> = loaded
        .warnings
        .iter()
        .map(|it| it.message.clone())
        .collect();
    for key in ["post_interval", "on_silence"] {
        let message = format!("`{key}` means nothing with `regions: regional` and is ignored");
        assert!(told.contains(&message), "{told:?}");
    }
}

#[test]
fn a_change_of_weights_is_told_as_one() {
    let text = "domain: d\ndescriptors: [ { key: k, rate_limit: { window: 1m, limit: 600, regions: regional } } ]\n";
    let without = text.replace(", regions: regional", "");
    let (before, after) = (rules(&without, "eu"), rules(text, "eu"));
    let changes: Vec<_> = after
        .changes_since(&before)
        .iter()
        .map(|change| format!("{change:?}"))
        .collect();
    assert_eq!(changes.len(), 1);
    assert!(
        changes[0].contains("regions none -> regional"),
        "{changes:?}"
    );
}

fn stored(limit: u64) -> TenantQuotas {
    let own = TenantOverride {
        requests_per_unit: limit,
        unit: Some("minute".into()),
        ..TenantOverride::default()
    };
    TenantQuotas {
        overrides: vec![own],
        ..TenantQuotas::default()
    }
}

/// A stored override takes over the sharing of the rule whose place it takes.
#[test]
fn overrides_of_tenants_are_shared_too() {
    let rules = rules(EVERYWHERE, "eu");
    assert_eq!(
        stored(80).check("d", &rules).map_err(|bad| bad.to_string()),
        Ok(())
    );
    let refused = stored(2)
        .check("d", &rules)
        .expect_err("one region would get nothing");
    assert!(
        refused.to_string().contains("2 cannot be split"),
        "{refused}"
    );
    let mut index = TenantIndex::new(TenantKey::from_bytes([9; 16]));
    let hash = TenantKey::from_bytes([9; 16]).hash("acme");
    index.put("d", hash, &stored(80));
    let with = rules.with_tenants(&index);
    assert_eq!(with.unknown, 0);
    assert_eq!(quotas(&with.rules).last(), Some(&(80, 40)));
    let of_files = EVERYWHERE.to_owned()
        + "tenants: [ { tenant: acme, overrides: [ { window: 1m, limit: 80 } ] } ]\n";
    assert!(quotas(&self::rules(&of_files, "us")).contains(&(80, 20)));
    let small = of_files.replace("limit: 80", "limit: 2");
    assert!(self::refused(&small)[0].contains("2 cannot be split"));
}

#[test]
fn a_limit_may_stay_out_of_what_its_domain_shares() {
    let text = "domain: d
regions: regional
descriptors:
- { key: shared, rate_limit: { window: 1m, limit: 600 } }
- { key: whole, rate_limit: { window: 1m, limit: 600, regions: none } }
- { key: here, regions: none, rate_limit: { window: 1m, limit: 600 } }
- { key: again, regions: none, rate_limit: { window: 1m, limit: 600, regions: bounded } }
";
    let rules = rules(text, "eu");
    let enforced = rules.rules().iter().map(|rule| {
        let limit = rule.enforced().expect("it is limited");
        (rule.regions, limit.quota())
    });
    let expected = [
        (Some(RegionMode::Regional), 300),
        (None, 600),
        (None, 600),
        (Some(RegionMode::Bounded), 300),
    ];
    assert_eq!(enforced.collect::<Vec<_>>(), expected);
}

#[test]
fn limits_of_plans_are_shared_like_the_limit_that_they_replace() {
    let with = |default: &str, pro: &str| {
        let text = format!(
            "domain: d\nplans: [free, pro]\ntenant: key\ndescriptors:\n- key: key\n  rate_limit: {default}\n  plans: {{ pro: {pro} }}\n"
        );
        let rules = rules(&text, "eu");
        let of_pro = rules.rules().iter();
        let of_pro = of_pro.filter(|rule| rule.plan.as_deref() == Some("pro"));
        let told = of_pro.map(|rule| {
            let share = rule.share.as_ref();
            (rule.regions, share.map(|share| share.limit.quota()))
        });
        told.collect::<Vec<_>>()
    };
    let shared = |quota| vec![(Some(RegionMode::Regional), Some(quota))];
    let default = "{ window: 1m, limit: 600, regions: regional }";
    assert_eq!(with(default, "{ window: 1m, limit: 6000 }"), shared(3_000));
    assert_eq!(with(default, "{ window: 1h, limit: 9000 }"), shared(4_500));
    assert_eq!(
        with(default, "{ window: 1m, limit: 6000, regions: bounded }"),
        [(Some(RegionMode::Bounded), Some(3_000))]
    );
    assert_eq!(with(default, "{ unlimited: true }"), [(None, None)]);
    // What it says itself counts, also that it is whole in each region.
    let whole = "{ window: 1m, limit: 6000, regions: none }";
    assert_eq!(with(default, whole), [(None, None)]);
    let lent = "{ window: 1m, limit: 600, regions: bounded }";
    let delayed = "{ window: 1m, limit: 6000, algorithm: leaky_bucket, regions: none }";
    assert_eq!(with(lent, delayed), [(None, None)]);
    // Of a list, that of the window.
    let list = "[{ window: 1s, limit: 50 }, { window: 1m, limit: 600, regions: regional }]";
    assert_eq!(with(list, "{ window: 1s, limit: 90 }"), [(None, None)]);
    assert_eq!(with(list, "{ window: 1m, limit: 6000 }"), shared(3_000));
    // With the keys that belong to it.
    let counted = "{ window: 1m, limit: 600, algorithm: fixed_window, regions: counted, post_interval: 5s, on_silence: alone }";
    let text = format!(
        "domain: d\nplans: [free, pro]\ntenant: key\ndescriptors:\n- key: key\n  rate_limit: {counted}\n  plans: {{ pro: {{ window: 1m, limit: 6000, algorithm: fixed_window }} }}\n"
    );
    let rules = rules(&text, "eu");
    let counted = rules.rules().iter().map(|rule| {
        let share = rule.share.as_ref().expect("regions share it");
        share.counted.expect("it is counted together")
    });
    let counted: Vec<_> = counted.collect();
    assert_eq!(counted.len(), 2);
    assert_eq!(counted[0], counted[1]);
    assert_eq!(counted[1].silent, Silent::Alone);
}

/// Tenants on pro, whose limit is whole in each region, and on free, whose limit regions lend each other.
fn apart(of_pro: &str) -> String {
    format!(
        "domain: d
plans: [free, pro]
tenant: key
descriptors:
- key: key
  rate_limit: {{ window: 1m, limit: 600, regions: bounded }}
  plans: {{ pro: {of_pro} }}
"
    )
}

/// The limit of `tenant` as this region enforces it, and whether regions share it.
pub(crate) fn enforced(rules: &RuleSet, tenant: &str, at: u64) -> (u64, Option<RegionMode>) {
    let entries = [Entry {
        key: "key",
        value: tenant,
    }];
    let domain = rules.domain("d").expect("it is there");
    let walk = domain.walk(&entries);
    let subscription = domain.subscription(&entries, Timestamp::from_secs(at));
    let found = subscription.rules(&entries, &walk);
    let rule = rules.rule(found.first().expect("a limit"));
    assert!(found.is_override, "{tenant}");
    let limit = rule.enforced().expect("it is limited");
    (limit.quota(), rule.regions)
}

/// A tenant that has bought more than its plan must not get less in a region.
#[test]
fn overrides_are_shared_like_the_limit_of_the_tenants_plan() {
    let text = apart("{ window: 1m, limit: 1000, regions: none }");
    let whole = (1_500, None);
    let lent = (750, Some(RegionMode::Bounded));
    let of_files = text.clone()
        + "tenants:
- { tenant: acme, plan: pro, overrides: [ { window: 1m, limit: 1500 } ] }
- { tenant: bolt, overrides: [ { window: 1m, limit: 1500 } ] }
- { tenant: core, plan: [ { name: pro, effective_at: 1970-01-02T00:00:00Z } ], overrides: [ { window: 1m, limit: 1500 } ] }
";
    let listed = rules(&of_files, "eu");
    let rules = rules(&text, "eu");
    let key = TenantKey::from_bytes([9; 16]);
    let mut index = TenantIndex::new(key.clone());
    let mut quotas = stored(1_500);
    index.put("d", key.hash("bolt"), &quotas);
    quotas.plans = vec![TenantPlan::new("pro")];
    index.put("d", key.hash("acme"), &quotas);
    let later = Term {
        from: Timestamp::from_secs(86_400),
        ..Term::ALWAYS
    };
    quotas.plans = vec![TenantPlan::new("pro").during(later)];
    index.put("d", key.hash("core"), &quotas);
    let mut with = rules.with_tenants(&index);
    assert_eq!(with.unknown, 0);
    for rules in [&listed, &with.rules] {
        assert_eq!(enforced(rules, "acme", 0), whole);
        assert_eq!(enforced(rules, "bolt", 0), lent);
        assert_eq!(enforced(rules, "core", 86_399), lent);
        assert_eq!(enforced(rules, "core", 86_400), whole);
    }
    // Neither rule is left once the last tenant that has it goes.
    for tenant in ["acme", "bolt", "core"] {
        index.remove("d", key.hash(tenant));
    }
    with = with.rules.with_tenants(&index);
    assert_eq!(with.rules.unused_overrides().len(), 2);
}

/// A limit that regions cannot share is allowed to tenants whose plans they do not share.
#[test]
fn an_override_is_refused_by_the_way_in_which_regions_share_its_tenants_plan() {
    let text = apart("{ window: 1m, limit: 1000, algorithm: leaky_bucket, regions: none }");
    let rules = rules(&text, "eu");
    let mut quotas = stored(1_500);
    quotas.overrides[0].algorithm = Some("leaky_bucket".into());
    let refused = quotas.check("d", &rules).expect_err("it cannot be lent");
    let told = refused.to_string();
    assert!(told.contains("a leaky_bucket cannot be lent"), "{told}");
    assert!(
        told.contains("an override takes `regions` from the limit of the tenant's plan"),
        "{told}"
    );
    quotas.plans = vec![TenantPlan::new("pro")];
    assert_eq!(
        quotas.check("d", &rules).map_err(|bad| bad.to_string()),
        Ok(())
    );
    let key = TenantKey::from_bytes([9; 16]);
    let mut index = TenantIndex::new(key.clone());
    index.put("d", key.hash("acme"), &quotas);
    let with = rules.with_tenants(&index);
    assert_eq!(with.unknown, 0);
    assert_eq!(enforced(&with.rules, "acme", 0), (1_500, None));
    let of = |plan: &str| {
        text.clone()
            + &format!(
                "tenants: [ {{ tenant: acme, {plan}overrides: [ {{ window: 1m, limit: 1500, algorithm: leaky_bucket }} ] }} ]\n"
            )
    };
    let listed = self::rules(&of("plan: pro, "), "eu");
    assert_eq!(enforced(&listed, "acme", 0), (1_500, None));
    assert!(self::refused(&of(""))[0].contains("a leaky_bucket cannot be lent"));
}
