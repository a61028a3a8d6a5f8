//! The export of spans, and its metrics.

use crate::settings::Settings;
use anyhow::Result;
use prometheus_client::encoding::DescriptorEncoder;
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::exemplar::Exemplar;
use ratekeeper_server::Monitored;
use ratekeeper_trace::{OtlpConfig, OtlpExport, Tracer};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use tracing::info;

/// The longest wait for the collector to take the last spans.
const WITHIN: Duration = Duration::from_secs(2);

/// The export of spans.
pub(crate) struct Traces {
    tracer: Tracer,
    export: OtlpExport,
}

impl Traces {
    /// Begins to export, if a collector is set; it need not be there yet.
    ///
    /// # Errors
    /// The collector's address cannot be used.
    pub(crate) fn start(settings: &Settings) -> Result<Option<Self>> {
        let told = &settings.traces;
        let Some(endpoint) = &told.endpoint else {
            return Ok(None);
        };
        let (tracer, queue) = Tracer::new(told.sample_ratio);
        let config = OtlpConfig {
            endpoint: endpoint.clone(),
            service_name: told.service_name.clone(),
            node: settings.log.denials.node.to_string(),
            version: env!("CARGO_PKG_VERSION"),
        };
        let export = OtlpExport::start(queue, &config)?;
        info!(
            collector = endpoint,
            sample_ratio = told.sample_ratio,
            "traces are exported"
        );
        Ok(Some(Self { tracer, export }))
    }

    pub(crate) fn tracer(&self) -> Tracer {
        self.tracer.clone()
    }

    /// The metrics of the export.
    pub(crate) fn report(&self) -> Arc<dyn Monitored> {
        Arc::new(TraceReport(self.tracer.clone()))
    }

    /// Sends what waits, and ends.
    pub(crate) async fn finish(self) {
        self.export.finish(WITHIN).await;
    }
}

#[derive(Debug)]
struct TraceReport(Tracer);

impl Monitored for TraceReport {
    fn subject(&self) -> &'static str {
        "traces"
    }

    fn encode(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let counts = self.0.counts();
        let none: Option<&Exemplar<[(&str, &str); 0], u64>> = None;
        let help = "Spans of traces: exported, dropped because the queue was full, or failed because the collector did \
                    not take them";
        let name = "ratelimit_trace_spans";
        let mut spans = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
        for (result, count) in [
            ("exported", counts.exported()),
            ("dropped", counts.dropped()),
            ("failed", counts.failed()),
        ] {
            spans
                .encode_family(&[("result", result)])?
                .encode_counter(&count, none)?;
        }
        Ok(())
    }

    // A limiter without its collector limits as well as with it.
    fn faults(&self) -> Vec<String> {
        Vec::new()
    }
}
