//! Traces, which envoyproxy/ratelimit sends over OTLP, with an endpoint from OpenTelemetry's own variables.

use super::super::environment::Environment;
use super::super::layer::Layers;
use super::super::problem::Problem;
use super::super::table::row;
use super::{is_true, put_text};

/// The switch.
const ENABLED: &str = "TRACING_ENABLED";

/// `http`, the default, or `grpc`.
const PROTOCOL: &str = "TRACING_EXPORTER_PROTOCOL";

/// The endpoints, the more specific first.
const ENDPOINTS: [&str; 2] = [
    "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT",
    "OTEL_EXPORTER_OTLP_ENDPOINT",
];

/// The place where collectors listen for OTLP over gRPC.
const ENDPOINT_DEFAULT: &str = "http://localhost:4317";

/// envoyproxy/ratelimit's own defaults, which differ from ours.
const SERVICE_NAME_DEFAULT: &str = "RateLimit";
const SAMPLING_RATE_DEFAULT: &str = "1";

/// Puts the settings of traces over `layers`, if they are on and go to a collector over gRPC.
pub(super) fn put(environment: &Environment, layers: &mut Layers, problems: &mut Vec<Problem>) {
    if !is_true(environment, ENABLED, problems) {
        return;
    }
    let protocol = environment.get(PROTOCOL).unwrap_or("http");
    if !protocol.eq_ignore_ascii_case("grpc") {
        layers.warnings.push(Problem {
            place: ENABLED.to_owned(),
            message: format!(
                "nothing is traced: traces are sent over gRPC alone, which most collectors take on port 4317; set \
                 {PROTOCOL}=grpc and OTEL_EXPORTER_OTLP_ENDPOINT, or `otlp_endpoint`"
            ),
        });
        return;
    }
    let said = ENDPOINTS
        .into_iter()
        .find_map(|name| Some((name, environment.get(name)?)));
    let (name, endpoint) = said.unwrap_or((ENABLED, ENDPOINT_DEFAULT));
    let endpoint = match endpoint.contains("://") {
        true => endpoint.to_owned(),
        false => format!("http://{endpoint}"),
    };
    let is_encrypted = endpoint.starts_with("https://");
    put_text(layers, &row::otlp_endpoint, name, endpoint);
    for (setting, name, default) in [
        (
            &row::trace_service_name,
            "TRACING_SERVICE_NAME",
            SERVICE_NAME_DEFAULT,
        ),
        (
            &row::trace_sample_ratio,
            "TRACING_SAMPLING_RATE",
            SAMPLING_RATE_DEFAULT,
        ),
    ] {
        let (name, text) = match environment.get(name) {
            Some(text) => (name, text),
            None => (ENABLED, default),
        };
        put_text(layers, setting, name, text);
    }
    let files = [
        (&row::otlp_ca, "OTEL_EXPORTER_OTLP_CERTIFICATE"),
        (&row::otlp_cert, "OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE"),
        (&row::otlp_key, "OTEL_EXPORTER_OTLP_CLIENT_KEY"),
    ];
    for (setting, name) in files {
        if let Some(path) = environment.get(name).filter(|_| is_encrypted) {
            put_text(layers, setting, name, path);
        }
    }
}
