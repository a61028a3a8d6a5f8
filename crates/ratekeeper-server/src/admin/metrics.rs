//! `/metrics`: what is counted, in the OpenMetrics text format. Every series is there from the
//! start, at zero. Values of descriptors never become labels, except for rules that ask for it.

mod envoy;
mod family;
mod leases;
mod operators;
mod process;
mod rules;
mod servers;
mod store;
mod synced;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Registry;
use ratekeeper_limiter::{OwedCounts, TopDecision, TopKey, TopWindow};
use ratekeeper_store::{LeaseGauges, SyncGauges};

use crate::app::App;
use crate::durations::DurationCounts;
use crate::front::Monitored;
use crate::reload::ReloadStatus;
use crate::store::{Agreement, ServedStore, ServerGauges, StoreGauges};
use crate::tls::TlsCounts;
use envoy::EnvoyFigures;
use family::{Label, count_of, counter, histogram};
use process::ProcessFigures;
use rules::RuleRow;

/// All metrics, as they are now.
pub(super) fn openmetrics<S: ServedStore>(app: &App<S>) -> Result<String, fmt::Error> {
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
    /// By store.
    degraded: Vec<(Box<str>, f64)>,
    owed: OwedCounts,
    unknown_domain: u64,
    unmatched: u64,
    concurrency_skipped: u64,
    /// By task.
    failures: [(&'static str, u64); 2],
    /// By listener.
    tls: Vec<TlsCounts>,
    monitored: Vec<Arc<dyn Monitored>>,
    process: ProcessFigures,
    /// The keys that are denied most, if they may be shown.
    top: Vec<TopKey>,
    /// The same counts by envoyproxy/ratelimit's names, if they are wanted.
    envoy: Option<EnvoyFigures>,
    /// Refusals of the admin API, by reason.
    refused: [(&'static str, u64); 3],
}

impl Scrape {
    fn new<S: ServedStore>(app: &App<S>) -> Self {
        let (totals, snapshot) = (app.limiter.totals(), app.limiter.snapshot());
        Self {
            rules: rules::rows(&snapshot),
            durations: app.durations.counts(),
            reloads: app.reloads.borrow().clone(),
            store: app.limiter.store().gauges(),
            servers: app.limiter.store().servers(),
            leases: app.limiter.store().lease_gauges(),
            synced: app.limiter.store().sync_gauges(),
            agreement: app.limiter.store().agreement(),
            degraded: app.degraded.shares(&snapshot),
            owed: app.limiter.owed(),
            unknown_domain: totals.unknown_domain.load(Ordering::Relaxed),
            unmatched: totals.unmatched.load(Ordering::Relaxed),
            failures: app
                .maintenance
                .all()
                .map(|task| (task.name, task.failures())),
            concurrency_skipped: totals.concurrency_skipped.load(Ordering::Relaxed),
            monitored: app.monitored(),
            process: ProcessFigures::read(app.started_at),
            top: top(app),
            envoy: app
                .envoy_metrics
                .then(|| EnvoyFigures::read(app, &snapshot)),
            refused: app.access.refused(),
            tls: app.tls.iter().map(|tls| tls.counts()).collect(),
        }
    }
}

/// The most series of `ratelimit_top_denied`.
const TOP_SERIES_MAX: usize = 50;

fn top<S: ServedStore>(app: &App<S>) -> Vec<TopKey> {
    let most = match app.top_denied_metric {
        true => TOP_SERIES_MAX,
        false => return Vec::new(),
    };
    let top = app.limiter.top();
    top.top(TopWindow::Minute, TopDecision::Denied, most, |_, _| true)
}

impl Collector for Scrape {
    fn encode(&self, mut encoder: DescriptorEncoder) -> fmt::Result {
        rules::encode(&self.rules, &mut encoder)?;
        self.failures(&mut encoder)?;
        self.totals(&mut encoder)?;
        process::encode(&self.process, &self.reloads, &mut encoder)?;
        self.top(&mut encoder)?;
        operators::encode(&self.rules, self.refused, &mut encoder)?;
        self.tls(&mut encoder)?;
        store::encode(&self.store, &mut encoder)?;
        servers::encode(&self.servers, self.agreement, &mut encoder)?;
        leases::encode(&self.leases, &self.synced, &mut encoder)?;
        synced::encode(&self.synced, &mut encoder)?;
        if let Some(envoy) = &self.envoy {
            envoy.encode(&self.reloads, &mut encoder)?;
        }
        let mut parts = self.monitored.iter();
        parts.try_for_each(|part| part.encode(&mut encoder))
    }
}

impl Scrape {
    fn failures(&self, encoder: &mut DescriptorEncoder) -> fmt::Result {
        let help = "Decisions by failure mode, by rule";
        let mut metric = counter(encoder, "ratelimit_failopen", help)?;
        for row in &self.rules {
            let [domain, rule] = row.labels();
            let labels = [domain, rule, ("mode", row.failure_mode.name())];
            count_of(&mut metric, labels, row.counts.uncounted)?;
        }
        let help = "Share of decisions made by failure modes in the last 10 s, 0 to 1";
        let name = "ratelimit_degraded_ratio";
        let mut metric = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
        for (store, share) in &self.degraded {
            let labels = [("store", &**store)];
            metric.encode_family(&labels)?.encode_gauge(share)?;
        }
        let help = "Hits admitted by failure modes, by state: owed to the store, posted to it, dropped, or unknown \
            (sent without an answer)";
        let mut metric = counter(encoder, "ratelimit_owed_hits", help)?;
        for (state, hits) in [
            ("owed", self.owed.owed),
            ("posted", self.owed.posted),
            ("dropped", self.owed.dropped),
            ("unknown", self.owed.unknown),
        ] {
            count_of(&mut metric, [("state", state)], hits)?;
        }
        Ok(())
    }

    fn top(&self, encoder: &mut DescriptorEncoder) -> fmt::Result {
        if self.top.is_empty() {
            return Ok(());
        }
        let help = "Denials in the last minute, of the most denied keys";
        let name = "ratelimit_top_denied";
        let mut metric = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
        for top in &self.top {
            let labels = [
                ("domain", &*top.domain),
                ("rule", &top.rule),
                ("key", &top.key),
            ];
            metric.encode_family(&labels)?.encode_gauge(&top.count)?;
        }
        Ok(())
    }

    fn totals(&self, encoder: &mut DescriptorEncoder) -> fmt::Result {
        let help = "Duration of checks";
        let mut metric = encoder.encode_descriptor(
            "ratelimit_check_duration_seconds",
            help,
            None,
            MetricType::Histogram,
        )?;
        histogram(
            &mut metric,
            self.durations.sum_seconds,
            &self.durations.buckets,
        )?;

        let help = "Loads of the rules, including the first";
        let mut metric = counter(encoder, "ratelimit_config_reload", help)?;
        count_of(&mut metric, [("result", "success")], self.reloads.accepted)?;
        count_of(&mut metric, [("result", "error")], self.reloads.refused)?;

        let help =
            "Failures of maintenance tasks, which are restarted: each is a bug in Ratekeeper";
        let mut metric = counter(encoder, "ratelimit_task_failures", help)?;
        for (task, count) in self.failures {
            count_of(&mut metric, [("task", task)], count)?;
        }

        for (name, help, count) in [
            (
                "ratelimit_unknown_domain",
                "Requests for a domain without rules; they are allowed",
                self.unknown_domain,
            ),
            (
                "ratelimit_unmatched",
                "Descriptors that no limit matched; they are allowed",
                self.unmatched,
            ),
            (
                "ratelimit_concurrency_skipped",
                "Concurrency limits skipped because nobody could release the permit",
                self.concurrency_skipped,
            ),
        ] {
            counter(encoder, name, help)?.encode_counter::<[Label<'_>; 0], _, u64>(&count, None)?;
        }
        Ok(())
    }

    fn tls(&self, encoder: &mut DescriptorEncoder) -> fmt::Result {
        if self.tls.is_empty() {
            return Ok(());
        }
        let help = "Loads of a listener's certificate, including the first";
        let mut metric = counter(encoder, "ratelimit_tls_reload", help)?;
        for tls in &self.tls {
            for (result, count) in [("success", tls.accepted), ("error", tls.refused)] {
                let labels = [("listener", tls.listener), ("result", result)];
                count_of(&mut metric, labels, count)?;
            }
        }
        let help = "Failed TLS handshakes: rejected clients, and clients that gave up";
        let mut metric = counter(encoder, "ratelimit_tls_handshake_failures", help)?;
        for tls in &self.tls {
            let labels = [("listener", tls.listener)];
            count_of(&mut metric, labels, tls.failed_handshakes)?;
        }
        Ok(())
    }
}
