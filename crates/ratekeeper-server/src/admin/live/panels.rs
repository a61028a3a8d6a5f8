//! The parts of the state of a node: its store, its leases, its quotas.

use std::collections::BTreeMap;
use std::time::Duration;

use ratekeeper_stores::ServerGauges;

use crate::admin_json::{
    AnomalyEntry, BreakerFigures, CounterFigures, LeaseFigures, OwedFigures, PlanUse,
    QuotaDatabaseFigures,
};
use crate::app::App;
use crate::figures::rule_counts::CountedRule;

/// The most plans in an event.
const PLANS_MAX: usize = 50;

/// Bounds of the remaining share of a limit, up to which a tenant counts as close to its limit.
const CLOSE: f64 = 0.1;

pub(super) fn breakers(app: &App) -> Vec<BreakerFigures> {
    let servers = app.limiter.store().servers().into_iter();
    servers.filter_map(breaker).collect()
}

fn breaker(server: ServerGauges) -> Option<BreakerFigures> {
    let state = match server.circuit? {
        0 => "closed",
        1 => "half-open",
        _ => "open",
    };
    let causes = server
        .errors
        .iter()
        .copied()
        .filter(|(_, count)| *count > 0)
        .map(|(cause, count)| (cause.to_owned(), count));
    Some(BreakerFigures {
        state: state.to_owned(),
        errors: server.errors.iter().map(|(_, count)| count).sum(),
        causes: causes.collect(),
        calls: server.durations.iter().map(|(_, count)| count).sum(),
        call_seconds: server.duration_seconds,
        shard: server.shard,
    })
}

pub(super) fn store(app: &App) -> CounterFigures {
    let gauges = app.limiter.store().gauges();
    CounterFigures {
        counters: gauges.counters,
        capacity: gauges.capacity,
        bytes: gauges.bytes,
        is_shared: !app.limiter.store().servers().is_empty(),
    }
}

pub(super) fn owed(app: &App) -> OwedFigures {
    let owed = app.limiter.owed();
    OwedFigures {
        owed: owed.owed,
        posted: owed.posted,
        dropped: owed.dropped,
        unknown: owed.unknown,
    }
}

pub(super) fn leases(app: &App) -> LeaseFigures {
    let leases = app.limiter.store().lease_gauges();
    let synced = app.limiter.store().sync_gauges();
    let held = leases.iter().map(|store| store.held).sum();
    let unsynced = synced.iter().map(|store| store.pending).sum();
    LeaseFigures {
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
    let on_plans = walked.iter().filter(|it| !it.listed.plan.is_empty());
    for CountedRule { listed, counts } in on_plans {
        let stats = listed.stats;
        let of_plan = plans
            .entry((&*stats.domain, listed.plan))
            .or_insert_with(|| PlanUse {
                domain: (*stats.domain).into(),
                plan: listed.plan.into(),
                ..PlanUse::default()
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

pub(super) fn quota_database(app: &App) -> Option<QuotaDatabaseFigures> {
    let status = app.config.quotas.as_ref()?.follower.quota_status();
    let away = status.away();
    Some(QuotaDatabaseFigures {
        state: away.as_ref().map_or("up", |_| "away").to_owned(),
        away_seconds: away.as_ref().map_or(0, Duration::as_secs),
        errors: status.failures(),
        tenants: status.tenants(),
        version: status.version(),
        ignored: status.unknown(),
        is_known: status.is_known(),
    })
}

/// The most anomalies in an event. All are at `/admin/v1/anomalies`.
const ANOMALIES_MAX: usize = 10;

pub(super) fn anomalies(app: &App) -> Vec<AnomalyEntry> {
    let active = app.limiter.growth().map(|watch| watch.active());
    let active = active.unwrap_or_default().into_iter();
    active.take(ANOMALIES_MAX).map(AnomalyEntry::from).collect()
}
