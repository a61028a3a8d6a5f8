//! The environment variables of envoyproxy/ratelimit, and what each corresponds to here.
//!
//! One table serves the start, `config show` and the page about migrating (a test compares them). A variable that is
//! not understood and that answers depend on stops the start: a limiter that silently ignores its settings is worse
//! than none. Variables that no answer depends on are named once, and the start goes on.

mod store;
mod traces;
mod variables;
mod xds;

use super::environment::Environment;
use super::layer::{Layers, Origin};
use super::problem::Problem;
use super::setting::Setting;
use super::table::row;
use super::values::{self, UNIX};
use std::path::PathBuf;
use variables::Here::{Is, Makes, Moot, Stops, Unused};
pub(crate) use variables::RUNTIME_ROOT;
use variables::{STOP_INCREMENT, VARIABLES};

/// The default of [`RUNTIME_ROOT`].
const RUNTIME_ROOT_DEFAULT: &str = "/srv/runtime_data/current";
/// Further variables that name parts of the path to the rules.
const RUNTIME_PARTS: [&str; 2] = ["RUNTIME_SUBDIRECTORY", "RUNTIME_APPDIRECTORY"];
/// Names that any program may use: they do not show that somebody comes from envoyproxy/ratelimit.
const COMMON: [&str; 11] = [
    "HOST",
    "PORT",
    "LOG_LEVEL",
    "LOG_FORMAT",
    "OTEL_EXPORTER_OTLP_ENDPOINT",
    "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT",
    "OTEL_EXPORTER_OTLP_PROTOCOL",
    "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL",
    "OTEL_EXPORTER_OTLP_CERTIFICATE",
    "OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE",
    "OTEL_EXPORTER_OTLP_CLIENT_KEY",
];
/// The most variables that one message lists.
const NAMED_MAX: usize = 5;

/// Returns true if answers depend on the variable of that name.
pub(crate) fn heeds(name: &str) -> bool {
    let is_called = |known: &str| match known.strip_suffix('*') {
        Some(start) => name.starts_with(start),
        None => name == known,
    };
    VARIABLES
        .iter()
        .any(|(known, here, _)| matches!(here, Is(_) | Makes | Stops(_)) && is_called(known))
}

/// Puts envoyproxy/ratelimit's variables over `layers`; those that cannot be translated go to `problems`.
pub(super) fn put(environment: &Environment, layers: &mut Layers, problems: &mut Vec<Problem>) {
    for (name, here, says) in VARIABLES {
        for (name, text) in environment.called(name) {
            match here {
                Is(setting) => put_text(layers, setting, name, text),
                Unused(fine) if !fine.holds(text) => layers.warnings.push(Problem {
                    place: name.to_owned(),
                    message: format!(
                        "this variable of envoyproxy/ratelimit changes nothing here: {says}"
                    ),
                }),
                Stops(fine) if !fine.holds(text) => problems.push(Problem {
                    place: name.to_owned(),
                    message: format!("`{text}` is not supported, and answers depend on it: {says}"),
                }),
                Makes | Moot | Unused(_) | Stops(_) => {}
            }
        }
    }
    put_address(environment, layers, &row::http, "HOST", "PORT");
    put_address(environment, layers, &row::grpc, "GRPC_HOST", "GRPC_PORT");
    put_address(environment, layers, &row::admin, "DEBUG_HOST", "DEBUG_PORT");
    if let Some(path) = environment.get("GRPC_UDS") {
        put_text(layers, &row::grpc, "GRPC_UDS", format!("{UNIX}{path}"));
    }
    put_tls(environment, layers, problems);
    store::put(environment, layers, problems);
    put_rules(environment, layers);
    xds::put(environment, layers, problems);
    if is_true(environment, "LIMIT_RESPONSE_HEADERS_ENABLED", problems) {
        put_text(
            layers,
            &row::response_headers,
            "LIMIT_RESPONSE_HEADERS_ENABLED",
            "limits",
        );
    }
    put_statsd(environment, layers, problems);
    traces::put(environment, layers, problems);
    if is_true(environment, "USE_PROMETHEUS", problems) {
        let text = environment.get("PROMETHEUS_ADDR").unwrap_or(":9090");
        put_text(layers, &row::metrics, "USE_PROMETHEUS", text);
    }
}

/// envoyproxy/ratelimit sends to statsd unless it is told otherwise; here a switch, the host or the port has to be set.
fn put_statsd(environment: &Environment, layers: &mut Layers, problems: &mut Vec<Problem>) {
    let is_dog = is_true(environment, "USE_DOG_STATSD", problems);
    let is_on = is_true(environment, "USE_STATSD", problems);
    let said = ["STATSD_HOST", "STATSD_PORT"];
    let said = said
        .into_iter()
        .find(|name| environment.get(name).is_some());
    let is_told = environment.get("USE_STATSD").is_some();
    let switch = match (is_dog, is_on, said) {
        (true, ..) => "USE_DOG_STATSD",
        (false, true, _) => "USE_STATSD",
        (false, false, Some(said)) if !is_told => said,
        _ => return,
    };
    let host = environment.get("STATSD_HOST").unwrap_or("localhost");
    let port = environment.get("STATSD_PORT").unwrap_or("8125");
    put_text(layers, &row::statsd, switch, format!("{host}:{port}"));
    if is_dog {
        put_text(layers, &row::statsd_format, switch, "dogstatsd");
    }
}

/// Checks what can only be judged once all layers are merged.
pub(super) fn judge(environment: &Environment, layers: &mut Layers, problems: &mut Vec<Problem>) {
    record_variables(environment, layers);
    let profile = layers.get(&row::profile).text;
    let counts_denied = profile.eq_ignore_ascii_case("envoy");
    if is_true(environment, STOP_INCREMENT, problems) && counts_denied {
        let message = "under the profile `envoy` denied requests are counted, and answers depend on it: leave this \
                       out, or use the profile `ratekeeper`, under which they are not, with `algorithm: fixed_window`";
        problems.push(Problem {
            place: STOP_INCREMENT.to_owned(),
            message: message.to_owned(),
        });
    }
}

/// Records which of envoyproxy/ratelimit's variables are used although no profile is set.
fn record_variables(environment: &Environment, layers: &mut Layers) {
    if !layers.get(&row::profile).is_default() {
        return;
    }
    let heeded = VARIABLES
        .iter()
        .filter(|(name, here, _)| matches!(here, Is(_) | Makes) && !COMMON.contains(name));
    let names = heeded.flat_map(|(name, ..)| environment.called(name));
    let mut names: Vec<&str> = names.map(|(name, _)| name).collect();
    let more = match names.len().saturating_sub(NAMED_MAX) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    names.truncate(NAMED_MAX);
    if !names.is_empty() {
        layers.envoy_variables = Some(format!("{}{more}", names.join(", ")));
    }
}

/// envoyproxy/ratelimit keeps hosts and ports apart; one of the two leaves the other as it stands.
fn put_address(
    environment: &Environment,
    layers: &mut Layers,
    setting: &'static Setting,
    host: &'static str,
    port: &'static str,
) {
    let (said_host, said_port) = (environment.get(host), environment.get(port));
    let name = match (said_host, said_port) {
        (None, None) => return,
        (Some(_), None) => host.to_owned(),
        (None, Some(_)) => port.to_owned(),
        (Some(_), Some(_)) => format!("{host} and {port}"),
    };
    let now = layers.get(setting).text;
    // A Unix socket has neither.
    let (host_now, port_now) = match now.strip_prefix(UNIX) {
        Some(_) => ("0.0.0.0", "0"),
        None => now.rsplit_once(':').unwrap_or((&now, "0")),
    };
    let host = said_host.unwrap_or(host_now);
    let port = said_port.unwrap_or(port_now);
    let bare_v6 = host.contains(':') && !host.starts_with('[');
    let text = if bare_v6 {
        format!("[{host}]:{port}")
    } else {
        format!("{host}:{port}")
    };
    put_text(layers, setting, &name, text);
}

/// envoyproxy/ratelimit has files and a switch for them; here TLS is on where there are files.
fn put_tls(environment: &Environment, layers: &mut Layers, problems: &mut Vec<Problem>) {
    const USE: &str = "GRPC_SERVER_USE_TLS";
    if !is_true(environment, USE, problems) {
        return;
    }
    for (setting, name, needed) in [
        (&row::grpc_tls_cert, "GRPC_SERVER_TLS_CERT", true),
        (&row::grpc_tls_key, "GRPC_SERVER_TLS_KEY", true),
        (&row::grpc_tls_client_ca, "GRPC_SERVER_TLS_CA_CERT", false),
        (&row::grpc_tls_client_ca, "GRPC_CLIENT_TLS_CACERT", false),
        (&row::grpc_tls_client_names, "GRPC_CLIENT_TLS_SAN", false),
    ] {
        match environment.get(name) {
            Some(text) => put_text(layers, setting, name, text),
            None if needed => problems.push(Problem {
                place: USE.to_owned(),
                message: format!("it needs {name}, which is not set"),
            }),
            None => {}
        }
    }
}

fn put_rules(environment: &Environment, layers: &mut Layers) {
    let root = environment.get(RUNTIME_ROOT);
    let [below, last] = RUNTIME_PARTS.map(|name| environment.get(name));
    if root.is_none() && below.is_none() && last.is_none() {
        return;
    }
    let path: PathBuf = [
        root.unwrap_or(RUNTIME_ROOT_DEFAULT),
        below.unwrap_or(""),
        last.unwrap_or("config"),
    ]
    .iter()
    .filter(|part| !part.is_empty())
    .collect();
    put_text(layers, &row::rules, RUNTIME_ROOT, path.to_string_lossy());
}

/// Returns true if a switch is on; reports a problem if it is neither on nor off.
fn is_true(environment: &Environment, name: &str, problems: &mut Vec<Problem>) -> bool {
    let read = environment.get(name).map_or(Ok(false), values::switch);
    read.unwrap_or_else(|error| {
        problems.push(Problem {
            place: name.to_owned(),
            message: error.to_string(),
        });
        false
    })
}

fn put_text(layers: &mut Layers, setting: &'static Setting, name: &str, text: impl Into<String>) {
    layers.put(setting, text, Origin::Variable(name.to_owned()));
}

#[cfg(test)]
mod tests;
