//! Tenants in memory, as a check finds them.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};
use ratekeeper_bench::resident_bytes;
use ratekeeper_core::Timestamp;
use ratekeeper_rules::{
    Entry, Options, RuleSet, Source, TenantIndex, TenantKey, TenantOverride, TenantPlan,
    TenantQuotas, load,
};

use super::Row;
use crate::node::RULES;

/// The most memory of all tenants, for a million of them.
const BYTES_MAX: u64 = 200_000_000;

/// The longest that a look-up may take on average.
const LOOKUP_MAX: Duration = Duration::from_nanos(100);

/// The passes over all look-ups, of which the fastest counts: others use this machine too.
const PASSES: usize = 7;

/// Fills an index, measures what it takes, and looks its tenants up.
pub(crate) fn measure(tenants: u64) -> Result<Vec<Row>> {
    eprintln!("{tenants} tenants in memory");
    let key = TenantKey::from_bytes([9; 16]);
    let before = resident_bytes(std::process::id())?;
    let mut index = TenantIndex::new(key.clone());
    for number in 0..tenants {
        index.put("d", key.hash(&name(number)), &quotas(number));
    }
    let bytes = resident_bytes(std::process::id())?.saturating_sub(before);
    let rules = rules()?.with_tenants(&index).rules;
    let domain = rules.domain("d").context("the rules have the domain")?;
    // Of fewer tenants, as many bytes each.
    let bytes_max = BYTES_MAX * tenants / 1_000_000;
    let row = |what: &str, value, goal, is_met| Row {
        what: what.to_owned(),
        value,
        goal,
        is_met,
    };
    let memory = format!("{tenants} tenants with an override each, in memory");
    let value = format!("{} MB", bytes / 1_000_000);
    let is_met = bytes <= bytes_max.max(20_000_000);
    let mut rows = vec![row(&memory, value, "200 MB for a million", is_met)];
    let mut random = fastrand::Rng::with_seed(1);
    let mut shuffled: Vec<_> = (0..tenants).collect();
    random.shuffle(&mut shuffled);
    let zipf = Zipf::new(tenants);
    let zipf = (0..tenants).map(|_| zipf.draw(&mut random)).collect();
    let mut told = |what: &str, time: Duration, goal: &'static str| {
        let is_met = goal.is_empty() || time <= LOOKUP_MAX;
        let value = format!("{:.0} ns", time.as_secs_f64() * 1e9);
        rows.push(row(what, value, goal, is_met));
    };
    let chain = Chain::new(bytes, &mut random);
    told(
        "a read of memory of that size whose address the last one told",
        chain.read(),
        "",
    );
    told(
        "a read whose address is known before",
        chain.read_ahead(),
        "",
    );
    let unknown = key.hash("nobody");
    let hash = |name: &str| key.hash(name) == unknown;
    let now = Timestamp::from_secs(1_800_000_000);
    let plan = |entries: &[Entry<'_>; 2]| domain.subscription(entries, now).plan().get();
    let own = |entries: &[Entry<'_>; 2]| {
        let subscription = domain.subscription(entries, now);
        usize::from(subscription.rules(entries, &[]).is_override)
    };
    for (order, numbers) in [("random", shuffled), ("zipf", zipf)] {
        let names = Names::new(&numbers);
        if order == "random" {
            told(
                "the hash of a tenant's name",
                names.time(|name| usize::from(hash(name))),
                "",
            );
        }
        let plan = names.time(|name| plan(&entries(name)));
        told(
            &format!("a look-up of the plan, in {order} order"),
            plan,
            "100 ns",
        );
        let own = names.time(|name| own(&entries(name)));
        told(&format!("and of an override, in {order} order"), own, "");
    }
    Ok(rows)
}

fn entries(name: &str) -> [Entry<'_>; 2] {
    let entries = [("customer", name), ("endpoint", "POST /orders")];
    entries.map(|(key, value)| Entry { key, value })
}

/// Names in the order in which they are looked up. They stand one behind the other, so that memory is not waited for
/// to read them.
struct Names {
    text: String,
    ends: Vec<u32>,
}

impl Names {
    fn new(numbers: &[u64]) -> Self {
        let (mut text, mut ends) = (String::new(), Vec::new());
        for number in numbers {
            text.push_str(&name(*number));
            ends.push(text.len() as u32);
        }
        Self { text, ends }
    }

    /// The time that `look` takes for a name.
    fn time(&self, look: impl Fn(&str) -> usize) -> Duration {
        fastest(self.ends.len(), || {
            let (mut from, mut sum) = (0, 0);
            for end in &self.ends {
                let end = *end as usize;
                sum += look(&self.text[from..end]);
                from = end;
            }
            sum
        })
    }
}

/// The time of one of `count` steps, in the fastest pass.
fn fastest(count: usize, pass: impl Fn() -> usize) -> Duration {
    let passes = (0..PASSES).map(|_| {
        let start = Instant::now();
        std::hint::black_box(pass());
        start.elapsed()
    });
    let fastest = passes.min().unwrap_or_default();
    fastest.div_f64(count as f64)
}

/// Lines of the cache, each of which tells which one is next.
struct Chain(Vec<[u64; 8]>);

impl Chain {
    fn new(bytes: u64, random: &mut fastrand::Rng) -> Self {
        let mut order: Vec<_> = (0..bytes.max(64) / 64).collect();
        random.shuffle(&mut order);
        let mut lines = vec![[0; 8]; order.len()];
        for (at, next) in order.iter().zip(order.iter().cycle().skip(1)) {
            lines[*at as usize] = [*next, 0, 0, 0, 0, 0, 0, 0];
        }
        Self(lines)
    }

    fn read(&self) -> Duration {
        let all = self.0.len();
        fastest(all, || (0..all).fold(0, |at, _| self.0[at][0] as usize))
    }

    fn read_ahead(&self) -> Duration {
        let all = self.0.len();
        let at = |step: usize| step.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20;
        fastest(all, || {
            (0..all)
                .map(|step| self.0[at(step) % all][0] as usize)
                .fold(0, usize::wrapping_add)
        })
    }
}

/// Tenants of which the n-th is asked for a n-th as often as the first.
struct Zipf(Vec<f64>);

impl Zipf {
    fn new(tenants: u64) -> Self {
        let shares = (1..=tenants).map(|rank| 1.0 / rank as f64);
        Self(
            shares
                .scan(0.0, |sum, share| {
                    *sum += share;
                    Some(*sum)
                })
                .collect(),
        )
    }

    fn draw(&self, random: &mut fastrand::Rng) -> u64 {
        let all = self.0.last().copied().unwrap_or_default();
        let drawn = random.f64() * all;
        self.0.partition_point(|sum| *sum < drawn) as u64
    }
}

fn name(number: u64) -> String {
    format!("customer-{number}")
}

fn quotas(number: u64) -> TenantQuotas {
    let plan = ["free", "pro", "enterprise"][(number % 3) as usize];
    let own = TenantOverride {
        descriptor: ["endpoint:POST /orders"].into_iter().collect(),
        requests_per_unit: number % 1_000 + 1,
        unit: Some("minute".into()),
        ..TenantOverride::default()
    };
    TenantQuotas {
        plans: vec![TenantPlan::new(plan)],
        overrides: vec![own],
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
