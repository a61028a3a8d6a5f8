//! The parts of the state of a node: its store, its leases, its quotas.

use std::collections::BTreeMap;
use std::time::Duration;

use ratekeeper_stores::ServerGauges;
use serde::Serialize;

use crate::app::App;
use crate::rule_counts::CountedRule;

/// The most plans in an event.
const PLANS_MAX: usize = 50;

/// Bounds of the remaining share of a limit, up to which a tenant counts as close to its limit.
const CLOSE: f64 = 0.1;

/// A server of a store.
#[derive(Serialize)]
pub(super) struct Breaker {
    shard: Box<str>,
    state: &'static str,
    /// Decisions that it could not take, since the start.
    errors: u64,
    /// The same by cause, without those that there were none of.
    causes: BTreeMap<&'static str, u64>,
    /// Calls that it answered since the start, and how long all of them took.
    calls: u64,
    call_seconds: f64,
}

/// The store as a whole.
#[derive(Serialize)]
pub(super) struct StoreState {
    counters: u64,
    capacity: u64,
    bytes: u64,
    /// True if counters live in servers that nodes share.
    is_shared: bool,
}

/// Hits that failure modes let pass.
#[derive(Serialize)]
pub(super) struct Owed {
    owed: u64,
    posted: u64,
    dropped: u64,
    unknown: u64,
}

/// Hits that this node holds in advance, or has not told the store yet.
#[derive(Serialize)]
pub(super) struct Leases {
    leases: u64,
    held: u64,
    /// Hits of synced counters that the store does not know yet.
    unsynced: u64,
    over_admission_bound: u64,
}

/// The use of their limits by the tenants on one plan, since the start.
#[derive(Serialize)]
pub(super) struct PlanUse {
    domain: Box<str>,
    plan: Box<str>,
    /// Answers of the plan's limits.
    answers: u64,
    denied: u64,
    /// Answers after which at most a tenth of the limit was left.
    close: u64,
    /// The sum of the used shares of the limits after each of those that were counted, and their number.
    used_sum: f64,
    counted: u64,
}

/// The database with tenants' quotas.
#[derive(Serialize)]
pub(super) struct QuotaDatabase {
    /// `up`, or `away`.
    state: &'static str,
    /// Seconds for which it has not answered.
    away_seconds: u64,
    /// Times that it could not be read.
    errors: u64,
    /// Tenants that are known here.
    tenants: u64,
    /// The number of the last change that is in force here.
    version: u64,
    /// Domains, plans and overrides in it that mean nothing under the rules.
    ignored: u64,
    /// False if tenants are without their quotas: neither the database nor a copy was there.
    is_known: bool,
}

pub(super) fn breakers(app: &App) -> Vec<Breaker> {
    let servers = app.limiter.store().servers().into_iter();
    servers.filter_map(breaker).collect()
}

fn breaker(server: ServerGauges) -> Option<Breaker> {
    let state = match server.circuit? {
        0 => "closed",
        1 => "half-open",
        _ => "open",
    };
    let causes = server
        .errors
        .iter()
        .copied()
        .filter(|(_, count)| *count > 0);
    Some(Breaker {
        state,
        errors: server.errors.iter().map(|(_, count)| count).sum(),
        causes: causes.collect(),
        calls: server.durations.iter().map(|(_, count)| count).sum(),
        call_seconds: server.duration_seconds,
        shard: server.shard,
    })
}

pub(super) fn store(app: &App) -> StoreState {
    let gauges = app.limiter.store().gauges();
    StoreState {
        counters: gauges.counters,
        capacity: gauges.capacity,
        bytes: gauges.bytes,
        is_shared: !app.limiter.store().servers().is_empty(),
    }
}

pub(super) fn owed(app: &App) -> Owed {
    let owed = app.limiter.owed();
    Owed {
        owed: owed.owed,
        posted: owed.posted,
        dropped: owed.dropped,
        unknown: owed.unknown,
    }
}

pub(super) fn leases(app: &App) -> Leases {
    let leases = app.limiter.store().lease_gauges();
    let synced = app.limiter.store().sync_gauges();
    let held = leases.iter().map(|store| store.held).sum();
    let unsynced = synced.iter().map(|store| store.pending).sum();
    Leases {
        leases: leases.iter().map(|store| store.leases).sum(),
        held,
        unsynced,
        over_admission_bound: held + unsynced,
    }
}

pub(super) fn lease_nodes(app: &App) -> u64 {
    let leases = app.limiter.store().lease_gauges();
    let of_default = leases.iter().find(|store| store.store.is_empty());
    of_default.map_or(0, |store| store.nodes)
}

/// The use of limits by plan, the plan with the most answers first.
#[expect(clippy::cast_precision_loss, reason = "figures for people")]
pub(super) fn plans(walked: &[CountedRule<'_>]) -> Vec<PlanUse> {
    let mut plans: BTreeMap<(&str, &str), PlanUse> = BTreeMap::new();
    let on_plans = walked.iter().filter(|it| !it.listed.stats.plan.is_empty());
    for CountedRule { listed, counts } in on_plans {
        let stats = listed.stats;
        let of_plan = plans
            .entry((&*stats.domain, &*stats.plan))
            .or_insert_with(|| PlanUse {
                domain: (*stats.domain).into(),
                plan: stats.plan.clone(),
                answers: 0,
                denied: 0,
                close: 0,
                used_sum: 0.0,
                counted: 0,
            });
        let counted: u64 = counts.remaining.iter().sum();
        let bounds = ratekeeper_limiter::REMAINING_BOUNDS.iter();
        let close = bounds
            .zip(counts.remaining)
            .filter(|(bound, _)| **bound <= CLOSE);
        of_plan.answers += counts.answers();
        of_plan.denied += counts.denied;
        of_plan.close += close.map(|(_, count)| count).sum::<u64>();
        of_plan.used_sum += counted as f64 - counts.remaining_sum_ppm as f64 / 1e6;
        of_plan.counted += counted;
    }
    let mut plans: Vec<_> = plans.into_values().collect();
    plans.sort_by_key(|plan| std::cmp::Reverse(plan.answers));
    plans.truncate(PLANS_MAX);
    plans
}

pub(super) fn quota_database(app: &App) -> Option<QuotaDatabase> {
    let status = app.config.quotas.as_ref()?.follower.status();
    let away = status.away();
    Some(QuotaDatabase {
        state: if away.is_some() { "away" } else { "up" },
        away_seconds: away.as_ref().map_or(0, Duration::as_secs),
        errors: status.failures(),
        tenants: status.tenants(),
        version: status.version(),
        ignored: status.unknown(),
        is_known: status.is_known(),
    })
}
