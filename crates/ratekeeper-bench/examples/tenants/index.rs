//! Tenants in memory, as a check finds them.

use std::fs;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};
use ratekeeper_core::Timestamp;
use ratekeeper_rules::{
    Entry, Options, OwnQuota, RuleSet, Source, TenantIndex, TenantKey, TenantQuotas, Term, load,
};

use crate::Row;
use crate::node::RULES;

/// The most memory of all tenants, for a million of them.
const BYTES_MAX: u64 = 200_000_000;

/// The longest that a look-up may take on average.
const LOOKUP_MAX: Duration = Duration::from_nanos(100);

/// The passes over all tenants, of which the median counts.
const PASSES: usize = 5;

/// Fills an index, measures what it takes, and looks its tenants up in random order.
pub(crate) fn measure(tenants: u64) -> Result<Vec<Row>> {
    eprintln!("{tenants} tenants in memory");
    let key = TenantKey::from_bytes([9; 16]);
    let before = resident()?;
    let mut index = TenantIndex::new(key.clone());
    for number in 0..tenants {
        index.put("d", key.hash(&name(number)), &quotas(number));
    }
    let bytes = resident()?.saturating_sub(before);
    let rules = rules()?.with_tenants(&index).rules;
    let domain = rules.domain("d").context("the rules have the domain")?;
    let names: Vec<_> = (0..tenants)
        .map(|number| name(number.wrapping_mul(7_919) % tenants))
        .collect();
    let now = Timestamp::from_secs(1_800_000_000);
    let pass = |look: &dyn Fn(&[Entry<'_>; 2]) -> usize| {
        let start = Instant::now();
        let sum: usize = names
            .iter()
            .map(|name| {
                let entries = [("customer", &**name), ("endpoint", "POST /orders")];
                look(&entries.map(|(key, value)| Entry { key, value }))
            })
            .sum();
        std::hint::black_box(sum);
        start.elapsed() / tenants as u32
    };
    let timed = |look: &dyn Fn(&[Entry<'_>; 2]) -> usize| {
        let mut passes: Vec<_> = (0..PASSES).map(|_| pass(look)).collect();
        passes.sort();
        passes[PASSES / 2]
    };
    let plan = timed(&|entries| domain.subscription(entries, now).plan().get());
    let own = timed(&|entries| {
        let subscription = domain.subscription(entries, now);
        usize::from(subscription.rules(entries, &[]).is_override)
    });
    // Of fewer tenants, as many bytes each.
    let bytes_max = BYTES_MAX * tenants / 1_000_000;
    Ok(vec![
        Row {
            what: format!("{tenants} tenants with an override each, in memory"),
            value: format!("{} MB", bytes / 1_000_000),
            goal: "200 MB for a million",
            is_met: bytes <= bytes_max.max(20_000_000),
        },
        Row {
            what: "a look-up of the plan, in random order".to_owned(),
            value: format!("{} ns", plan.as_nanos()),
            goal: "100 ns",
            is_met: plan <= LOOKUP_MAX,
        },
        Row {
            what: "and of an override".to_owned(),
            value: format!("{} ns", own.as_nanos()),
            goal: "",
            is_met: true,
        },
    ])
}

fn name(number: u64) -> String {
    format!("customer-{number}")
}

fn quotas(number: u64) -> TenantQuotas {
    let plan = ["free", "pro", "enterprise"][(number % 3) as usize];
    let own = OwnQuota {
        descriptor: vec!["endpoint:POST /orders".into()],
        requests_per_unit: number % 1_000 + 1,
        unit: Some("minute".into()),
        ..OwnQuota::default()
    };
    TenantQuotas {
        plans: vec![(Term::ALWAYS, plan.into())],
        overrides: vec![(Term::ALWAYS, own)],
        epoch: 0,
    }
}

fn rules() -> Result<RuleSet> {
    let source = Source {
        name: "rules.yaml".to_owned(),
        text: RULES.to_owned(),
    };
    match load(&[source], &Options::default()) {
        Ok(loaded) => Ok(loaded.rules),
        Err(refused) => Err(anyhow!("{refused}")),
    }
}

/// The memory of this process that is resident, in bytes.
fn resident() -> Result<u64> {
    of_status(&fs::read_to_string("/proc/self/status")?)
}

/// The resident memory that `/proc/PID/status` tells, in bytes.
pub(crate) fn of_status(status: &str) -> Result<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|rest| rest.split_whitespace().next()?.parse::<u64>().ok());
    Ok(kib.context("the kernel tells the resident memory")? * 1_024)
}
