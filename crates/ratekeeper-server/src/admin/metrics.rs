//! `/metrics`: what is counted, in the OpenMetrics text format. Every series is there from the
//! start, at zero. Values of descriptors never become labels, except for rules that ask for it.

mod envoy;
mod leases;
mod operators;
mod process;
mod regions;
mod rules;
mod servers;
mod store;
mod synced;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;
use prometheus_client::registry::Registry;
use ratekeeper_core::Regions;
use ratekeeper_limiter::{Growth, OwedCounts, TopDecision, TopKey, TopWindow};
use ratekeeper_store::{LeaseGauges, SyncGauges};

use crate::app::App;
use crate::figures::durations::DurationCounts;
use crate::figures::families::{Families, NO_LABELS, by};
use crate::figures::monitored::Monitored;
use crate::figures::rule_counts;
use crate::listen::tls::TlsCounts;
use crate::reload::ReloadStatus;
use envoy::EnvoyFigures;
use process::ProcessFigures;
use ratekeeper_stores::{Agreement, ServerGauges, StoreGauges};
use rules::RuleRow;

/// All metrics, as they are now.
pub(super) fn openmetrics(app: &App) -> Result<String, fmt::Error> {
    let mut registry = Registry::default();
    registry.register_collector(Box::new(Scrape::new(app)));
    let mut text = String::new();
    prometheus_client::encoding::text::encode(&mut text, &registry)?;
    Ok(text)
}

/// The counts of one moment.
#[derive(Debug)]
struct Scrape {
    rules: Vec<RuleRow>,
    durations: DurationCounts,
    reloads: ReloadStatus,
    store: StoreGauges,
    servers: Vec<ServerGauges>,
    leases: Vec<LeaseGauges>,
    synced: Vec<SyncGauges>,
    agreement: Option<Agreement>,
    /// The regions that share limits, if a rule is shared.
    regions: Option<Arc<Regions>>,
    /// By store.
    degraded: Vec<(Box<str>, f64)>,
    owed: OwedCounts,
    /// The whole seconds by which the node's clock is ahead.
    clock_ahead: u64,
    unknown_domain: u64,
    unmatched: u64,
    concurrency_skipped: u64,
    /// By task.
    failures: Vec<(&'static str, u64)>,
    /// By listener.
    tls: Vec<TlsCounts>,
    monitored: Vec<Arc<dyn Monitored>>,
    process: ProcessFigures,
    /// The keys that are denied most, if they may be shown.
    top: Vec<TopKey>,
    /// The same counts by envoyproxy/ratelimit's names, if they are wanted.
    envoy: Option<EnvoyFigures>,
    /// By protocol and reason.
    unreadable: Vec<(&'static str, &'static str, u64)>,
    /// Refusals of the admin API, by reason.
    refused: [(&'static str, u64); 3],
    callers_refused: [(&'static str, u64); 2],
    /// Unusual growth that goes on, and all of it since the start; [`None`] if it is not watched for.
    growth: Option<(Vec<Growth>, u64)>,
}

impl Scrape {
    fn new(app: &App) -> Self {
        let (totals, snapshot) = (app.limiter.totals(), app.limiter.snapshot());
        let walked = rule_counts::walk(&snapshot);
        Self {
            rules: rules::rows(&walked),
            durations: app.durations.counts(),
            reloads: app.reloads.borrow().clone(),
            store: app.limiter.store().gauges(),
            servers: app.limiter.store().servers(),
            leases: app.limiter.store().lease_gauges(),
            synced: app.limiter.store().sync_gauges(),
            agreement: app.limiter.store().agreement(),
            regions: snapshot.rules().regions().cloned(),
            degraded: app.degraded.shares(&app.last_counts.delta(&walked)),
            owed: app.limiter.owed(),
            clock_ahead: app.limiter.clock().ahead().get() / 1_000_000,
            unknown_domain: totals.unknown_domain.load(Ordering::Relaxed),
            unmatched: totals.unmatched.load(Ordering::Relaxed),
            failures: app.task_failures(),
            concurrency_skipped: totals.concurrency_skipped.load(Ordering::Relaxed),
            monitored: app.monitored(),
            process: ProcessFigures::read(app.started_at),
            top: top(app),
            envoy: app
                .config
                .envoy_metrics
                .then(|| EnvoyFigures::read(app, snapshot.rules(), &walked)),
            unreadable: app.unreadable.counts(),
            refused: app.access.refused(),
            callers_refused: app.callers.refused(),
            growth: app.limiter.growth().map(|it| (it.active(), it.begun())),
            tls: app.tls.iter().map(|tls| tls.counts()).collect(),
        }
    }
}

/// The most series of `ratelimit_top_denied`.
const TOP_SERIES_MAX: usize = 50;

fn top(app: &App) -> Vec<TopKey> {
    let most = match app.config.top_denied_metric {
        true => TOP_SERIES_MAX,
        false => return Vec::new(),
    };
    let top = app.limiter.top();
    top.top(TopWindow::Minute, TopDecision::Denied, most, |_, _| true)
}

impl Collector for Scrape {
    fn encode(&self, encoder: DescriptorEncoder) -> fmt::Result {
        let families = &mut Families::new(encoder);
        rules::encode(&self.rules, families)?;
        self.failures(families)?;
        self.totals(families)?;
        process::encode(&self.process, &self.reloads, families)?;
        self.top(families)?;
        self.growth(families)?;
        operators::encode(&self.rules, self.refused, self.callers_refused, families)?;
        self.tls(families)?;
        store::encode(&self.store, families)?;
        servers::encode(&self.servers, self.agreement, families)?;
        leases::encode(&self.leases, &self.synced, families)?;
        synced::encode(&self.synced, families)?;
        regions::encode(self.regions.as_deref(), families)?;
        if let Some(envoy) = &self.envoy {
            envoy.encode(&self.reloads, families)?;
        }
        let mut parts = self.monitored.iter();
        parts.try_for_each(|part| part.encode(families))
    }
}

impl Scrape {
    fn failures(&self, families: &mut Families<'_>) -> fmt::Result {
        let failed = self.rules.iter().map(|row| {
            let [domain, rule] = row.labels();
            let labels = [domain, rule, ("mode", row.failure_mode.name())];
            (labels, row.counts.uncounted)
        });
        let help = "Decisions by failure mode, by rule";
        families.counters("ratelimit_failopen", help, failed)?;
        let shares = self
            .degraded
            .iter()
            .map(|(store, share)| (&**store, *share));
        let help = "Share of decisions made by failure modes in the last 10 s, 0 to 1";
        families.gauges("ratelimit_degraded_ratio", help, by("store", shares))?;
        let hits = [
            ("owed", self.owed.owed),
            ("posted", self.owed.posted),
            ("dropped", self.owed.dropped),
            ("unknown", self.owed.unknown),
        ];
        let help = "Hits admitted by failure modes, by state: owed to the store, posted to it, dropped, or unknown \
                    (sent without an answer)";
        families.counters("ratelimit_owed_hits", help, by("state", hits))
    }

    fn top(&self, families: &mut Families<'_>) -> fmt::Result {
        if self.top.is_empty() {
            return Ok(());
        }
        let top = self.top.iter().map(|top| {
            let (domain, rule) = (("domain", &*top.domain), ("rule", &*top.rule));
            ([domain, rule, ("key", &*top.key)], top.count)
        });
        let help = "Denials in the last minute, of the most denied keys";
        families.gauges("ratelimit_top_denied", help, top)
    }

    fn growth(&self, families: &mut Families<'_>) -> fmt::Result {
        let Some((active, begun)) = &self.growth else {
            return Ok(());
        };
        let help = "Reports of unusual growth: far more requests of a rule, or of one of its callers, than in the hour before";
        families.counter("ratelimit_anomalies", help, *begun)?;
        let mut by_rule: BTreeMap<(&str, &str, &str), u64> = BTreeMap::new();
        for row in &self.rules {
            let [(_, domain), (_, rule)] = row.labels();
            by_rule.insert((domain, rule, "caller"), 0);
            by_rule.insert((domain, rule, "rule"), 0);
        }
        for growth in active {
            let of = if growth.subject.is_some() {
                "caller"
            } else {
                "rule"
            };
            *by_rule
                .entry((&growth.domain, &growth.rule, of))
                .or_default() += 1;
        }
        let active = by_rule.into_iter().map(|((domain, rule, of), count)| {
            ([("domain", domain), ("rule", rule), ("of", of)], count)
        });
        let help = "Unusual growth that goes on, by rule: of the rule as a whole, or of callers";
        families.gauges("ratelimit_anomalies_active", help, active)
    }

    fn totals(&self, families: &mut Families<'_>) -> fmt::Result {
        let DurationCounts {
            sum_seconds,
            buckets,
        } = &self.durations;
        families.histograms(
            "ratelimit_check_duration_seconds",
            "Duration of checks",
            [(NO_LABELS, (*sum_seconds, buckets.clone()))],
        )?;
        let loads = [
            ("success", self.reloads.accepted),
            ("error", self.reloads.refused),
        ];
        let help = "Loads of the rules, including the first";
        families.counters("ratelimit_config_reload", help, by("result", loads))?;
        let help =
            "Failures of maintenance tasks, which are restarted: each is a bug in Ratekeeper";
        let failures = by("task", self.failures.iter().copied());
        families.counters("ratelimit_task_failures", help, failures)?;
        let help =
            "Whole seconds by which the node's clock is ahead of the machine's, which was set back";
        families.gauge("ratelimit_clock_ahead_seconds", help, self.clock_ahead)?;
        families.counter(
            "ratelimit_unknown_domain",
            "Requests for a domain without rules; they are allowed",
            self.unknown_domain,
        )?;
        families.counter(
            "ratelimit_unmatched",
            "Descriptors that no limit matched; they are allowed",
            self.unmatched,
        )?;
        let unreadable = self.unreadable.iter();
        let unreadable = unreadable.map(|(protocol, reason, count)| {
            ([("protocol", *protocol), ("reason", *reason)], *count)
        });
        let help = "Requests that could not be read, by reason; denied unless `on_unreadable` says otherwise";
        families.counters("ratelimit_unreadable_requests", help, unreadable)?;
        families.counter(
            "ratelimit_concurrency_skipped",
            "Concurrency limits skipped because no one could release the permit",
            self.concurrency_skipped,
        )
    }

    fn tls(&self, families: &mut Families<'_>) -> fmt::Result {
        if self.tls.is_empty() {
            return Ok(());
        }
        let loads = self.tls.iter().flat_map(|tls| {
            let results = [("success", tls.accepted), ("error", tls.refused)];
            let labels = |result| [("listener", tls.listener), ("result", result)];
            results.map(|(result, count)| (labels(result), count))
        });
        let help = "Loads of a listener's certificate, including the first";
        families.counters("ratelimit_tls_reload", help, loads)?;
        let failed = self
            .tls
            .iter()
            .map(|tls| (tls.listener, tls.failed_handshakes));
        let ends = self
            .tls
            .iter()
            .filter_map(|tls| Some((tls.listener, tls.expiry?)));
        families.gauges(
            "ratelimit_tls_certificate_expiry_timestamp_seconds",
            "End of the certificate in use, in seconds since 1970",
            by("listener", ends),
        )?;
        let help = "Failed TLS handshakes: rejected clients, and clients that gave up";
        families.counters(
            "ratelimit_tls_handshake_failures",
            help,
            by("listener", failed),
        )
    }
}
