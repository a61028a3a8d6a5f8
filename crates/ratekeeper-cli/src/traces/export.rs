//! The export of spans, and its metrics.

use crate::settings::{Environment, Settings, TraceProtocol, TraceSettings, trace_headers};
use anyhow::{Context, Result, anyhow};
use http::HeaderMap;
use ratekeeper_server::{Families, Monitored, by};
use ratekeeper_trace::{OtlpConfig, OtlpError, OtlpExport, OtlpProtocol, Tracer};
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
    /// The collector's address cannot be used, or a file for it cannot.
    pub(crate) fn start(settings: &Settings) -> Result<Option<Self>> {
        let told = &settings.traces;
        let Some(endpoint) = &told.endpoint else {
            return Ok(None);
        };
        let (tracer, queue) = Tracer::new(told.sample_ratio);
        let config = OtlpConfig {
            endpoint: endpoint.clone(),
            protocol: match told.protocol {
                TraceProtocol::Grpc => OtlpProtocol::Grpc,
                TraceProtocol::HttpProtobuf => OtlpProtocol::HttpProtobuf,
            },
            tls: told.tls.clone(),
            headers: headers(told)?,
            service_name: told.service_name.clone(),
            node: settings.values.node_name.to_string(),
            version: env!("CARGO_PKG_VERSION"),
        };
        let export = OtlpExport::start(queue, &config).map_err(|error| match error {
            OtlpError::Tls(error) => anyhow!("{}", told.tls_settings.blame(&error)),
            error => error.into(),
        })?;
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

/// OpenTelemetry's own variable for headers. Over gRPC, the exporter reads it itself.
const HEADERS: &str = "OTEL_EXPORTER_OTLP_HEADERS";

/// The headers for the collector, those in the file included.
fn headers(told: &TraceSettings) -> Result<HeaderMap> {
    let mut headers = told.headers.clone();
    let environment = Environment::of_process();
    let common = environment.get(HEADERS);
    if let (TraceProtocol::HttpProtobuf, Some(text)) = (told.protocol, common) {
        for (name, value) in &trace_headers(text).context(HEADERS)? {
            // Ours go first.
            headers.entry(name).or_insert_with(|| value.clone());
        }
    }
    if let Some(path) = &told.headers_file {
        let place = || format!("otlp_headers_file: cannot use {}", path.display());
        let text = std::fs::read_to_string(path).with_context(place)?;
        headers.extend(trace_headers(&text).with_context(place)?);
    }
    Ok(headers)
}

#[derive(Debug)]
struct TraceReport(Tracer);

impl Monitored for TraceReport {
    fn subject(&self) -> &'static str {
        "traces"
    }

    fn encode(&self, families: &mut Families<'_>) -> fmt::Result {
        let counts = self.0.counts();
        let spans = [
            ("exported", counts.exported()),
            ("dropped", counts.dropped()),
            ("failed", counts.failed()),
        ];
        let help = "Spans by result: exported, dropped because the queue was full, or failed because the collector \
                    refused them";
        families.counters("ratelimit_trace_spans", help, by("result", spans))
    }

    // A limiter without its collector limits as well as with it.
    fn faults(&self) -> Vec<String> {
        Vec::new()
    }
}
