//! Limits that follow usage: the same on SQLite and on PostgreSQL, and each step taken once.

use std::sync::Arc;

use ratekeeper_core::{Micros, Regions, Timestamp};
use ratekeeper_quota::{
    AdjustRound, AdjustStep, AdjustTimes, CallRow, Precondition, QuotaStore, TenantPut,
    TenantRecord, UsageRow,
};
use ratekeeper_rules::{
    AdjustMode, Dated as _, NodeRegion, Options, RuleSet, Source, TenantOverride, TenantPlan,
    TenantQuotas, Term, load,
};

use crate::support::{Database, editor, on, orders, run, store, tenant};

/// 1000 a minute on pro, raised by up to twice a half.
fn rules(mode: &str, pro: u64) -> RuleSet {
    rules_over("minute", mode, pro)
}

/// The same, with another unit.
fn rules_over(unit: &str, mode: &str, pro: u64) -> RuleSet {
    loaded(rules_text(unit, mode, pro))
}

fn rules_text(unit: &str, mode: &str, pro: u64) -> String {
    format!(
        "domain: d
evaluation: path
tenant: customer
plans: [free, pro, enterprise]
adjust: {{ plans: [pro], mode: {mode} }}
descriptors:
- key: customer
  rate_limit: {{ unit: minute, requests_per_unit: 100 }}
  plans:
    pro: {{ unit: {unit}, requests_per_unit: {pro} }}
    enterprise: {{ unit: minute, requests_per_unit: 5000 }}
  descriptors:
  - {{ key: endpoint, value: POST /orders, rate_limit: {{ unit: minute, requests_per_unit: 20 }} }}
"
    )
}

fn loaded(text: String) -> RuleSet {
    let source = Source {
        name: "rules.yaml".to_owned(),
        text,
    };
    let loaded = load(&[source], &Options::default());
    loaded.expect("the rules are right").rules
}

/// The middle of a minute, far from now.
const NOW: Timestamp = Timestamp::from_secs(1_800_000_030);
const DAY: Micros = Micros::from_secs(86_400);

fn calls(name: &str, node: &str, now: Timestamp, allowed: u64) -> UsageRow {
    UsageRow {
        minute: now.as_micros() / 60_000_000,
        domain: "d".to_owned(),
        tenant: Some(tenant(name).hash),
        rule: "d.customer@pro".to_owned(),
        node: node.to_owned(),
        allowed,
        denied: 3,
    }
}

async fn put(quotas: &QuotaStore, name: &str, of: &TenantQuotas) {
    let put = TenantPut::now(tenant(name), of.clone());
    let (rules, editor) = (rules("on", 1_000), editor());
    let put = quotas.put(&put, Precondition::Any, &editor, &rules);
    put.await.expect("it can be put");
}

async fn record(quotas: &QuotaStore, name: &str) -> TenantRecord {
    let found = quotas.get("d", tenant(name).hash).await;
    found.expect("it answers").expect("it is there")
}

/// Steps and limit of the override of the policy; and when it ends.
async fn raised(quotas: &QuotaStore, name: &str) -> Option<(u16, u64, Timestamp)> {
    let record = record(quotas, name).await;
    let mut overrides = record.quotas.overrides.iter();
    let own = overrides.find(|own| own.steps.is_some())?;
    Some((own.steps?, own.requests_per_unit, own.term().until))
}

/// The steps that two nodes take when they look at the same time.
async fn adjust(
    nodes: &[QuotaStore; 2],
    rules: &RuleSet,
    round: AdjustRound,
    now: Timestamp,
) -> Vec<AdjustStep> {
    let [a, b] = nodes;
    let times = by_clock(now, Micros::ZERO);
    let one = Box::pin(a.adjust("d", rules, round, times));
    let other = Box::pin(b.adjust("d", rules, round, times));
    let (one, other) = tokio::join!(one, other);
    let steps = one.expect("it answers").into_iter();
    steps.chain(other.expect("it answers")).collect()
}

/// The times of a node whose own clock is `ahead` of the wall.
fn by_clock(wall: Timestamp, ahead: Micros) -> AdjustTimes {
    AdjustTimes {
        wall,
        recorded: wall.after(ahead),
    }
}

fn told(steps: &[AdjustStep]) -> Vec<(u16, u16, u64)> {
    steps
        .iter()
        .map(|step| (step.from, step.to, step.limit))
        .collect()
}

#[test]
fn sqlite_limits_over_a_day_follow_usage() {
    run(follows_a_day(&Database::sqlite()));
}

#[test]
fn postgres_limits_over_a_day_follow_usage() {
    run(follows_a_day(&Database::postgres()));
}

async fn follows_a_day(database: &Database) {
    let nodes = nodes(database);
    let [quotas, _] = &nodes;
    let rules = rules_over("day", "on", 1_000);
    // In two of the hours of the day; and one who called much, but by other rules.
    let early = Timestamp::from_micros(NOW.as_micros() - DAY.get() / 2);
    for (name, by_rule) in [("acme", 450), ("bob", 100), ("other", 1)] {
        put(quotas, name, &on("pro")).await;
        for now in [early, NOW] {
            let usage = calls(name, "a", now, by_rule);
            let of_hour = CallRow {
                hour: usage.minute / 60,
                domain: "d".to_owned(),
                tenant: usage.tenant,
                node: "a".to_owned(),
                allowed: by_rule.max(if name == "other" { 9_000 } else { 0 }),
                denied: 0,
            };
            let written = quotas.write_calls(&[of_hour], &[]).await;
            written.expect("they can be written");
            quotas
                .write_usage(&[usage])
                .await
                .expect("it can be written");
        }
    }
    let steps = adjust(&nodes, &rules, AdjustRound::Busy, NOW).await;
    assert_eq!(told(&steps), []);
    let steps = adjust(&nodes, &rules, AdjustRound::All, NOW).await;
    assert_eq!(told(&steps), [(0, 1, 1_500)]);
    assert_eq!(steps[0].tenant.shown, "acme");
}

#[test]
fn sqlite_limits_follow_usage() {
    run(suite(&Database::sqlite()));
}

#[test]
fn postgres_limits_follow_usage() {
    run(suite(&Database::postgres()));
}

async fn suite(database: &Database) {
    // Boxed: one after the other, they would need the stack of all.
    Box::pin(takes_each_step_once(database)).await;
    Box::pin(leaves_others_alone(database)).await;
    Box::pin(tells_of_refused_steps(database)).await;
    Box::pin(rewords_what_another_build_wrote_once_an_hour(database)).await;
    Box::pin(follows_a_change_that_leaves_the_numbers(database)).await;
    Box::pin(takes_steps_of_a_plan_that_regions_do_not_share(database)).await;
    Box::pin(notes_steps_in_shadow(database)).await;
}

fn nodes(database: &Database) -> [QuotaStore; 2] {
    let address = database.fresh();
    [store(&address), store(&address)]
}

async fn takes_each_step_once(database: &Database) {
    let nodes = nodes(database);
    let [quotas, _] = &nodes;
    let rules = rules("on", 1_000);
    let with_orders = TenantQuotas {
        overrides: vec![orders(500)],
        ..on("pro")
    };
    put(quotas, "acme", &with_orders).await;
    let busy = [calls("acme", "a", NOW, 500), calls("acme", "b", NOW, 299)];
    quotas.write_usage(&busy).await.expect("it can be written");
    let steps = adjust(&nodes, &rules, AdjustRound::All, NOW).await;
    assert_eq!(told(&steps), [], "799 of 1000");
    let one_more = [calls("acme", "b", NOW, 300)];
    quotas
        .write_usage(&one_more)
        .await
        .expect("it can be written");
    let steps = adjust(&nodes, &rules, AdjustRound::Busy, NOW).await;
    assert_eq!(told(&steps), [(0, 1, 1_500)], "one of two nodes took it");
    assert_eq!((steps[0].mode, &*steps[0].plan), (AdjustMode::On, "pro"));
    let forever = Term::ALWAYS.until;
    assert_eq!(raised(quotas, "acme").await, Some((1, 1_500, forever)));
    assert_eq!(record(quotas, "acme").await.quotas.overrides.len(), 2);
    let steps = adjust(&nodes, &rules, AdjustRound::All, NOW).await;
    assert_eq!(told(&steps), [], "the same calls are no reason for another");

    // Calls of the override count as those of the plan did.
    let later = NOW.after(Micros::from_secs(300));
    let own = UsageRow {
        rule: "d.customer@custom".to_owned(),
        ..calls("acme", "a", later, 1_900)
    };
    quotas.write_usage(&[own]).await.expect("it can be written");
    let steps = adjust(&nodes, &rules, AdjustRound::Busy, later).await;
    assert_eq!(told(&steps), [(1, 2, 2_000)]);
    let steps = adjust(&nodes, &rules, AdjustRound::All, later).await;
    assert_eq!(told(&steps), [], "two steps are the most");

    // The plan's limit changes, and the steps stay.
    let dearer = self::rules("on", 2_000);
    adjust(&nodes, &dearer, AdjustRound::All, later).await;
    assert_eq!(raised(quotas, "acme").await, Some((2, 4_000, forever)));
    adjust(&nodes, &rules, AdjustRound::All, later).await;
    assert_eq!(raised(quotas, "acme").await, Some((2, 2_000, forever)));

    // 1900 a minute needed the second step, which is why it stays for a day.
    let almost = Timestamp::from_micros(later.after(DAY).as_micros() - 1);
    let steps = adjust(&nodes, &rules, AdjustRound::All, almost).await;
    assert_eq!(told(&steps), []);
    let quiet = later.after(DAY).after(Micros::from_secs(120));
    let steps = adjust(&nodes, &rules, AdjustRound::All, quiet).await;
    assert_eq!(told(&steps), [(2, 1, 1_500)]);
    let steps = adjust(&nodes, &rules, AdjustRound::All, quiet).await;
    assert_eq!(told(&steps), [], "a day for each step");
    let steps = adjust(&nodes, &rules, AdjustRound::All, quiet.after(DAY)).await;
    assert_eq!(told(&steps), [(1, 0, 1_000)]);
    assert_eq!(raised(quotas, "acme").await, None);
    assert_eq!(record(quotas, "acme").await.quotas, with_orders);

    let trail = quotas.audit(0, 100).await.expect("it answers");
    let actions: Vec<_> = trail.iter().map(|row| &*row.action).collect();
    assert_eq!(
        actions,
        [
            "put", "adjust", "adjust", "adjust", "adjust", "adjust", "adjust"
        ]
    );
    assert!(
        trail[1..]
            .iter()
            .all(|row| row.editor.name == "adjust policy")
    );
    let after = trail[1].after.as_deref().unwrap_or_default();
    assert!(after.contains("\"steps\":1"), "{after}");
}

async fn leaves_others_alone(database: &Database) {
    let nodes = nodes(database);
    let [quotas, _] = &nodes;
    let rules = rules("on", 1_000);
    let set = TenantOverride {
        requests_per_unit: 7,
        unit: Some("minute".into()),
        ..TenantOverride::default()
    };
    let with_own = TenantQuotas {
        overrides: vec![set],
        ..on("pro")
    };
    let ends = Term {
        from: Term::ALWAYS.from,
        until: NOW.after(DAY),
    };
    let for_a_day = TenantQuotas {
        plans: vec![TenantPlan::new("pro").during(ends)],
        ..TenantQuotas::default()
    };
    for (name, of) in [
        ("set", &with_own),
        ("big", &on("enterprise")),
        ("trial", &for_a_day),
    ] {
        put(quotas, name, of).await;
    }
    let busy: Vec<_> = ["set", "big", "trial", "unknown"]
        .map(|name| calls(name, "a", NOW, 9_000))
        .into();
    quotas.write_usage(&busy).await.expect("it can be written");
    let steps = adjust(&nodes, &rules, AdjustRound::All, NOW).await;
    let names: Vec<_> = steps.iter().map(|step| &*step.tenant.shown).collect();
    assert_eq!(names, ["trial"]);
    // The plan's end is the end of its raise.
    assert_eq!(raised(quotas, "trial").await, Some((1, 1_500, ends.until)));
    assert_eq!(record(quotas, "set").await.quotas, with_own);
    // Who is given quotas again starts over.
    put(quotas, "trial", &on("pro")).await;
    assert_eq!(raised(quotas, "trial").await, None);
    let off = self::rules("off", 1_000);
    let steps = adjust(&nodes, &off, AdjustRound::All, NOW).await;
    assert_eq!(told(&steps), []);
}

/// The rules have changed since: a plan that the tenant is to have later is gone.
async fn tells_of_refused_steps(database: &Database) {
    let nodes = nodes(database);
    let [quotas, _] = &nodes;
    let tomorrow = NOW.after(DAY);
    let [now, later] = [
        (Term::ALWAYS.from, tomorrow),
        (tomorrow, Term::ALWAYS.until),
    ];
    let term = |(from, until)| Term { from, until };
    let moving = TenantQuotas {
        plans: vec![
            TenantPlan::new("pro").during(term(now)),
            TenantPlan::new("enterprise").during(term(later)),
        ],
        ..TenantQuotas::default()
    };
    put(quotas, "acme", &moving).await;
    let busy = [calls("acme", "a", NOW, 900)];
    quotas.write_usage(&busy).await.expect("it can be written");
    let text = rules_text("minute", "on", 1_000).replace("enterprise", "another");
    let steps = adjust(&nodes, &loaded(text), AdjustRound::All, NOW).await;
    assert_eq!(told(&steps), [(0, 1, 1_500), (0, 1, 1_500)]);
    for step in steps {
        let why = step.refused.expect("it is refused").to_string();
        assert!(why.contains("no plan 'enterprise'"), "{why}");
    }
    assert_eq!(raised(quotas, "acme").await, None);
}

#[test]
fn sqlite_a_clock_that_is_ahead_moves_no_step() {
    run(a_clock_that_is_ahead_moves_no_step(&Database::sqlite()));
}

#[test]
fn postgres_a_clock_that_is_ahead_moves_no_step() {
    run(a_clock_that_is_ahead_moves_no_step(&Database::postgres()));
}

/// A node that goes on from the time of saved counters records its calls, and looks at them, by a clock that the others do
/// not have.
async fn a_clock_that_is_ahead_moves_no_step(database: &Database) {
    let nodes = nodes(database);
    let [quotas, other] = &nodes;
    let text = rules_text("minute", "on", 1_000).replace("mode: on", "mode: on, lower_after: 30m");
    let rules = loaded(text);
    let minutes = |minutes: u64| Micros::from_secs(60 * minutes);
    let ahead = minutes(50);
    for name in ["acme", "bob"] {
        put(quotas, name, &on("pro")).await;
        let busy = [calls(name, "a", NOW.after(ahead), 1_300)];
        quotas.write_usage(&busy).await.expect("it can be written");
    }
    let look = async |node: &QuotaStore, times| {
        let steps = node.adjust("d", &rules, AdjustRound::All, times).await;
        told(&steps.expect("it answers"))
    };
    let steps = look(quotas, by_clock(NOW, ahead)).await;
    assert_eq!(steps, [(0, 1, 1_500); 2]);
    for name in ["acme", "bob"] {
        let own = &record(quotas, name).await.quotas.overrides[0];
        assert!(own.term().contains(NOW), "it is in force on all nodes");
    }
    let steps = look(quotas, by_clock(NOW.after(minutes(1)), ahead)).await;
    assert_eq!(steps, [(1, 2, 2_000); 2], "a minute later, by the wall");

    // One is busy on another node, the other on this one alone: neither node lowers the limit for want of calls that it sees.
    let later = NOW.after(minutes(32));
    let busy = [calls("acme", "b", later, 1_900)];
    quotas.write_usage(&busy).await.expect("it can be written");
    let busy = [calls("bob", "a", later.after(ahead), 1_900)];
    quotas.write_usage(&busy).await.expect("it can be written");
    assert_eq!(look(other, by_clock(later, Micros::ZERO)).await, []);
    assert_eq!(look(quotas, by_clock(later, ahead)).await, []);
    let quiet = later.after(minutes(50));
    assert_eq!(
        look(other, by_clock(quiet, Micros::ZERO)).await,
        [(2, 1, 1_500)]
    );
    assert_eq!(raised(quotas, "acme").await.map(|it| it.0), Some(1));
}

/// During an upgrade nodes of both builds look at the same tenants.
async fn rewords_what_another_build_wrote_once_an_hour(database: &Database) {
    let nodes = nodes(database);
    let [quotas, _] = &nodes;
    let rules = rules("on", 1_000);
    put(quotas, "acme", &on("pro")).await;
    let now = record(quotas, "acme").await.updated_at;
    let busy = [calls("acme", "a", now, 900)];
    quotas.write_usage(&busy).await.expect("it can be written");
    let steps = adjust(&nodes, &rules, AdjustRound::All, now).await;
    assert_eq!(told(&steps), [(0, 1, 1_500)]);
    let written = record(quotas, "acme").await.quotas;
    let mut other = written.clone();
    (other.overrides[0].algorithm, other.overrides[0].post_paid) = (None, None);
    assert_ne!(other, written);
    put(quotas, "acme", &other).await;
    let now = record(quotas, "acme").await.updated_at;
    let steps = adjust(&nodes, &rules, AdjustRound::All, now).await;
    assert_eq!(told(&steps), []);
    assert_eq!(record(quotas, "acme").await.quotas, other);
    let later = now.after(Micros::from_secs(3_600));
    let steps = adjust(&nodes, &rules, AdjustRound::All, later).await;
    assert_eq!(told(&steps), [(1, 1, 1_500)]);
    assert_eq!(
        record(quotas, "acme").await.quotas.overrides,
        written.overrides
    );
}

/// The plan's limit as many hits as before, charged in another way: nobody is to wait for it.
async fn follows_a_change_that_leaves_the_numbers(database: &Database) {
    let nodes = nodes(database);
    let [quotas, _] = &nodes;
    let rules = rules("on", 1_000);
    put(quotas, "acme", &on("pro")).await;
    let now = record(quotas, "acme").await.updated_at;
    let busy = [calls("acme", "a", now, 900)];
    quotas.write_usage(&busy).await.expect("it can be written");
    let steps = adjust(&nodes, &rules, AdjustRound::All, now).await;
    assert_eq!(told(&steps), [(0, 1, 1_500)]);
    let changed = |keys: &str| {
        let text = rules_text("minute", "on", 1_000);
        let pro = "requests_per_unit: 1000";
        assert!(text.contains(pro));
        loaded(text.replace(pro, &format!("{pro}, {keys}")))
    };
    for (keys, algorithm, debt) in [
        ("post_paid: true", "sliding_window", None),
        ("algorithm: gcra", "gcra", None),
        (
            "algorithm: gcra, post_paid: true, max_debt: 100",
            "gcra",
            Some(150),
        ),
        (
            "algorithm: gcra, post_paid: true, max_debt: 200",
            "gcra",
            Some(300),
        ),
    ] {
        let steps = adjust(&nodes, &changed(keys), AdjustRound::All, now).await;
        assert_eq!(told(&steps), [(1, 1, 1_500)], "{keys}");
        let own = record(quotas, "acme").await.quotas.overrides.remove(0);
        assert_eq!(own.post_paid, Some(keys.contains("post_paid")), "{keys}");
        assert_eq!(own.algorithm.as_deref(), Some(algorithm), "{keys}");
        assert_eq!(own.max_debt, debt, "{keys}");
    }
}

/// Regions lend each other the default plan's limit, and leave pro's whole.
async fn takes_steps_of_a_plan_that_regions_do_not_share(database: &Database) {
    let nodes = nodes(database);
    let [quotas, _] = &nodes;
    let text = rules_text("minute", "on", 1_000)
        .replace(
            "requests_per_unit: 100 }",
            "requests_per_unit: 100, regions: bounded }",
        )
        .replace(
            "requests_per_unit: 1000",
            "requests_per_unit: 1000, algorithm: leaky_bucket, regions: none",
        );
    let regions = Regions::try_new("eu", 1, [("eu".into(), 1), ("us".into(), 1)]);
    let mut options = Options::default();
    options.region = NodeRegion::In(Arc::new(regions.expect("they are two")));
    let source = Source {
        name: "rules.yaml".to_owned(),
        text,
    };
    let rules = load(&[source], &options).expect("they are right").rules;
    put(quotas, "acme", &on("pro")).await;
    let busy = [calls("acme", "a", NOW, 900)];
    quotas.write_usage(&busy).await.expect("it can be written");
    let steps = adjust(&nodes, &rules, AdjustRound::All, NOW).await;
    assert_eq!(told(&steps), [(0, 1, 1_500)]);
    assert_eq!(steps[0].refused, None);
    assert!(raised(quotas, "acme").await.is_some());
}

async fn notes_steps_in_shadow(database: &Database) {
    let nodes = nodes(database);
    let [quotas, _] = &nodes;
    let rules = rules("shadow", 1_000);
    put(quotas, "acme", &on("pro")).await;
    let busy = [calls("acme", "a", NOW, 900)];
    quotas.write_usage(&busy).await.expect("it can be written");
    let steps = adjust(&nodes, &rules, AdjustRound::All, NOW).await;
    assert_eq!(told(&steps), [(0, 1, 1_500)]);
    assert_eq!(steps[0].mode, AdjustMode::Shadow);
    let steps = adjust(&nodes, &rules, AdjustRound::All, NOW).await;
    assert_eq!(told(&steps), []);
    assert_eq!(raised(quotas, "acme").await, None, "nothing is changed");
    let quiet = NOW.after(DAY).after(Micros::from_secs(120));
    let steps = adjust(&nodes, &rules, AdjustRound::All, quiet).await;
    assert_eq!(told(&steps), [(1, 0, 1_000)]);
    let trail = quotas.audit(0, 100).await.expect("it answers");
    let actions: Vec<_> = trail.iter().map(|row| &*row.action).collect();
    assert_eq!(actions, ["put", "adjust.shadow", "adjust.shadow"]);
}
