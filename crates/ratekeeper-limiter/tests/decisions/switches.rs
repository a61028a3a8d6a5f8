//! Rules that are switched while requests are decided.

use ratekeeper_limiter::{RuleMode, RuleSwitch, SwitchError, Switches};

use crate::support::{Pairs, limiter, rules};
use ratekeeper_limiter::{Check, Decision, Limiter};
use ratekeeper_rules::LevelStatus;
use ratekeeper_store::memory::MemoryStore;

const RULES: &str = "
domain: d
descriptors:
  - { key: on, rate_limit: { unit: hour, requests_per_unit: 1 } }
  - { key: off, enabled: false, rate_limit: { unit: hour, requests_per_unit: 1 } }
  - { key: shown, shadow_mode: true, rate_limit: { unit: hour, requests_per_unit: 1 } }
";

const ON: Pairs<'_> = &[("on", "a")];

fn switch(limiter: &Limiter<MemoryStore>, rule: &str, to: Option<RuleSwitch>) {
    let switched = limiter.switch(rule, to).expect("the rule is there");
    assert_eq!(switched.get(rule), to);
}

/// Asks now, as an explanation does.
fn ask(limiter: &Limiter<MemoryStore>, pairs: Pairs<'_>) -> Decision {
    limiter.check_now(&Check::new("d").descriptor(pairs))
}

fn passes(limiter: &Limiter<MemoryStore>, pairs: Pairs<'_>, times: u64) -> bool {
    (0..times).all(|_| ask(limiter, pairs).allowed())
}

/// The note of `rules explain` about the only limit of a descriptor.
fn note(limiter: &Limiter<MemoryStore>, pairs: Pairs<'_>) -> String {
    let explanation = limiter.explain_now(&Check::new("d").descriptor(pairs));
    let limit = &explanation.descriptors[0].nodes[0].limits[0];
    limit.note.clone().unwrap_or_default()
}

#[test]
fn a_switch_is_in_force_at_the_next_check_and_keeps_the_counts() {
    let limiter = limiter(RULES);
    assert!(passes(&limiter, ON, 1));
    assert!(!ask(&limiter, ON).allowed());
    switch(&limiter, "d.on", Some(RuleSwitch::Disabled));
    assert!(passes(&limiter, ON, 3), "it takes no part");
    assert!(ask(&limiter, ON).answers()[0].binding.is_none());
    assert_eq!(note(&limiter, ON), "does not count: its switch is off");
    switch(&limiter, "d.on", Some(RuleSwitch::Shadow));
    assert!(passes(&limiter, ON, 3), "it counts, and denies nothing");
    assert!(note(&limiter, ON).starts_with("shadow by its switch"));
    switch(&limiter, "d.on", Some(RuleSwitch::Enabled));
    assert!(
        !ask(&limiter, ON).allowed(),
        "the hit from before still counts"
    );
    switch(&limiter, "d.on", None);
    assert!(!ask(&limiter, ON).allowed());
    let counts = limiter.snapshot().stats().next().expect("a rule").counts();
    assert_eq!(
        (counts.allowed, counts.denied, counts.shadow_denied),
        (1, 3, 3)
    );
}

#[test]
fn enabling_puts_a_disabled_rule_in_force_and_leaves_a_shadow_rule_in_shadow() {
    let limiter = limiter(RULES);
    let modes = |limiter: &Limiter<MemoryStore>| {
        let snapshot = limiter.snapshot();
        snapshot
            .listed()
            .map(|listed| listed.mode)
            .collect::<Vec<_>>()
    };
    use RuleMode::{Disabled, Enforced, Shadow};
    assert_eq!(modes(&limiter), [Enforced, Disabled, Shadow]);
    for rule in ["d.on", "d.off", "d.shown"] {
        switch(&limiter, rule, Some(RuleSwitch::Enabled));
    }
    assert_eq!(modes(&limiter), [Enforced, Enforced, Shadow]);
    assert!(passes(&limiter, &[("off", "a")], 1));
    assert!(!ask(&limiter, &[("off", "a")]).allowed());
}

#[test]
fn switches_outlive_reloads_and_rules_that_are_gone_for_a_while() {
    let limiter = limiter(RULES);
    switch(&limiter, "d.on", Some(RuleSwitch::Disabled));
    limiter.replace_rules(rules(RULES));
    assert!(passes(&limiter, ON, 3));
    limiter.replace_rules(rules("domain: d\ndescriptors: []\n"));
    assert_eq!(
        limiter.snapshot().switches().get("d.on"),
        Some(RuleSwitch::Disabled)
    );
    limiter.replace_rules(rules(RULES));
    assert!(passes(&limiter, ON, 3));

    let none = SwitchError::UnknownRule("d.none".into());
    assert_eq!(
        limiter.switch("d.none", Some(RuleSwitch::Disabled)),
        Err(none.clone())
    );
    assert_eq!(limiter.switch("d.none", None), Err(none));

    let kept = [
        ("d.on".into(), RuleSwitch::Shadow),
        ("d.later".into(), RuleSwitch::Disabled),
    ];
    limiter.restore_switches(Switches::from_iter(kept));
    assert!(passes(&limiter, ON, 3));
    let later = "domain: d\ndescriptors:\n  - { key: later, rate_limit: { unit: hour, requests_per_unit: 0 } }\n";
    limiter.replace_rules(rules(later));
    assert!(passes(&limiter, &[("later", "a")], 1));
    switch(&limiter, "d.on", None);
}

/// It has the format of envoyproxy/ratelimit, whose users look there for what holds.
#[test]
fn rlconfig_shows_rules_as_they_are_switched_and_the_limits_of_plans() {
    let limiter = limiter(
        "
domain: d
tenant: api_key
plans: [free, pro]
descriptors:
  - key: api_key
    rate_limit: { unit: hour, requests_per_unit: 1 }
    plans: { pro: { unit: hour, requests_per_unit: 5 } }
  - { key: off, enabled: false, rate_limit: { unit: hour, requests_per_unit: 1 } }
  - { key: shown, shadow_mode: true, rate_limit: { unit: hour, requests_per_unit: 1 } }
",
    );
    let lines = || {
        let text = limiter.snapshot().rlconfig();
        let lines = text.lines().map(|line| {
            let (path, rest) = line
                .split_once(": unit=HOUR requests_per_unit=")
                .expect("a limit");
            let rest = rest.replace(", quota_mode: false", "");
            format!("{path} {}", rest.replace(", algorithm: sliding_window", ""))
        });
        lines.collect::<Vec<_>>()
    };
    let written = [
        "d.api_key 1, shadow_mode: false",
        "d.api_key 5, shadow_mode: false, plan: pro",
        "d.off 1, shadow_mode: false, enabled: false",
        "d.shown 1, shadow_mode: true",
    ];
    assert_eq!(lines(), written);
    switch(&limiter, "d.api_key", Some(RuleSwitch::Shadow));
    switch(&limiter, "d.api_key@pro", Some(RuleSwitch::Disabled));
    switch(&limiter, "d.off", Some(RuleSwitch::Enabled));
    let switched = [
        "d.api_key 1, shadow_mode: true",
        "d.api_key 5, shadow_mode: false, enabled: false, plan: pro",
        "d.off 1, shadow_mode: false",
        "d.shown 1, shadow_mode: true",
    ];
    assert_eq!(lines(), switched);
}

const LEVELS: &str = "
domain: d
tenant: api_key
descriptors:
  - { key: api_key, rate_limit: { unit: hour, limit: 1000 } }
slas_base: /
slas:
  - { id: product, enabled: false, methods: [GET], pathPattern: '/product/*', tiers: [ { period: 1h, threshold: 1 }, { period: 1d, threshold: 9 } ] }
  - { id: all, pathPattern: '/**', tiers: [ { period: 1h, threshold: 100 } ] }
tenants:
  - { tenant: acme, overrides: [ { descriptor: 'sla:product', unit: hour, limit: 50 } ] }
";

/// The service level of a request for a product, and the modes of the product's rules: its tiers, and a tenant's own limit.
fn level(limiter: &Limiter<MemoryStore>) -> (String, Vec<RuleMode>) {
    let snapshot = limiter.snapshot();
    let found = snapshot.rules().service_level("GET", "/product/7");
    let id = found.expect("one matches").level.id.to_string();
    let of_product = snapshot
        .listed()
        .filter(|listed| listed.rule.id.starts_with("product"));
    (id, of_product.map(|listed| listed.mode).collect())
}

/// Else a rule that is said to be in force would limit nothing.
#[test]
fn a_service_level_holds_while_one_of_its_rules_takes_part() {
    use RuleMode::{Disabled, Enforced, Shadow};
    let limiter = limiter(LEVELS);
    let told = |id: &str, modes: [RuleMode; 3]| (id.to_owned(), modes.to_vec());
    assert_eq!(level(&limiter), told("all", [Disabled; 3]));
    switch(&limiter, "product#1d", Some(RuleSwitch::Enabled));
    let expected = told("product", [Disabled, Enforced, Disabled]);
    assert_eq!(level(&limiter), expected);
    switch(&limiter, "product#1h", Some(RuleSwitch::Shadow));
    switch(&limiter, "product#1d", None);
    switch(&limiter, "product@custom", Some(RuleSwitch::Enabled));
    // Shadow does not take the requests away from the level that is enforced.
    assert_eq!(level(&limiter), told("all", [Shadow, Disabled, Disabled]));
    switch(&limiter, "product#1h", Some(RuleSwitch::Enabled));
    let expected = told("product", [Enforced, Disabled, Enforced]);
    assert_eq!(level(&limiter), expected);
    // A tenant's own limit of it is in force with it alone.
    switch(&limiter, "product#1h", None);
    assert_eq!(level(&limiter), told("all", [Disabled; 3]));
    // A reload reads the file, and the switches stay.
    switch(&limiter, "product#1h", Some(RuleSwitch::Enabled));
    limiter.replace_rules(rules(LEVELS));
    let expected = told("product", [Enforced, Disabled, Enforced]);
    assert_eq!(level(&limiter), expected);
}

/// Two levels of one pattern are accepted as long as one of them is off: that a switch enables it is meant to count.
#[test]
fn a_service_level_that_a_switch_enables_comes_before_one_of_the_same_pattern() {
    let files = "
slas_base: /
slas:
  - { id: before, enabled: false, pathPattern: '/product/*', tiers: [ { period: 1h, threshold: 1 } ] }
  - { id: usual, pathPattern: '/product/{id}', tiers: [ { period: 1h, threshold: 100 } ] }
  - { id: after, enabled: false, pathPattern: '/product/{id}', tiers: [ { period: 1h, threshold: 2 } ] }
";
    let limiter = limiter(files);
    let holds = || {
        let snapshot = limiter.snapshot();
        let rules = snapshot.rules();
        let found = rules.service_level("GET", "/product/7");
        let id = found.expect("one matches").level.id.to_string();
        let mut told = rules.service_level_statuses("GET", "/product/7");
        told.retain(|(_, status)| *status == LevelStatus::Holds);
        assert_eq!(*told[0].0.id, *id);
        id
    };
    assert_eq!(holds(), "usual");
    for tight in ["before", "after"] {
        switch(&limiter, tight, Some(RuleSwitch::Enabled));
        assert_eq!(holds(), tight);
        switch(&limiter, tight, None);
        assert_eq!(holds(), "usual");
    }
}
