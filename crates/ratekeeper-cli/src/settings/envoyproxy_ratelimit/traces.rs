//! Traces, which envoyproxy/ratelimit sends over OTLP, with an endpoint from OpenTelemetry's own variables.

use super::super::environment::Environment;
use super::super::layer::Layers;
use super::super::problem::Problem;
use super::super::table::row;
use super::{is_true, put_text};

/// The switch.
const ENABLED: &str = "TRACING_ENABLED";

/// Protocols, the more specific first: envoyproxy/ratelimit's own, `http` or `grpc`, and OpenTelemetry's. Without any it is
/// HTTP.
const PROTOCOLS: [&str; 3] = [
    "TRACING_EXPORTER_PROTOCOL",
    "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL",
    "OTEL_EXPORTER_OTLP_PROTOCOL",
];

/// The endpoint of traces.
const OF_TRACES: &str = "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT";

/// The endpoint of everything, over HTTP without the path of traces.
const OF_ALL: &str = "OTEL_EXPORTER_OTLP_ENDPOINT";

/// The places where collectors listen for OTLP over gRPC and HTTP.
const OVER_GRPC: &str = "http://localhost:4317";
const OVER_HTTP: &str = "http://localhost:4318";

/// The path of traces below the endpoint of everything.
const PATH: &str = "/v1/traces";

/// envoyproxy/ratelimit's own defaults, which differ from ours.
const SERVICE_NAME_DEFAULT: &str = "RateLimit";
const SAMPLING_RATE_DEFAULT: &str = "1";

/// Puts the settings of traces over `layers`, if they are on.
pub(super) fn put(environment: &Environment, layers: &mut Layers, problems: &mut Vec<Problem>) {
    if !is_true(environment, ENABLED, problems) {
        return;
    }
    let mut said = PROTOCOLS.into_iter();
    let said = said.find_map(|name| Some((name, environment.get(name)?)));
    let (name, protocol) = said.unwrap_or((ENABLED, "http"));
    let is_http = protocol.eq_ignore_ascii_case("http");
    let protocol = if is_http { "http/protobuf" } else { protocol };
    put_text(layers, &row::otlp_protocol, name, protocol);
    let is_grpc = protocol.eq_ignore_ascii_case("grpc");
    let default = if is_grpc { OVER_GRPC } else { OVER_HTTP };
    let (name, endpoint) = match (environment.get(OF_TRACES), environment.get(OF_ALL)) {
        (Some(endpoint), _) => (OF_TRACES, endpoint.to_owned()),
        (None, Some(endpoint)) if is_grpc => (OF_ALL, endpoint.to_owned()),
        (None, Some(endpoint)) => (OF_ALL, format!("{}{PATH}", endpoint.trim_end_matches('/'))),
        (None, None) => (ENABLED, default.to_owned()),
    };
    let endpoint = match endpoint.contains("://") {
        true => endpoint,
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
