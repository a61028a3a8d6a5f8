//! Rules over xDS, as envoyproxy/ratelimit is told of its control plane.

use super::super::environment::Environment;
use super::super::layer::Layers;
use super::super::problem::Problem;
use super::super::table::row;
use super::super::values::percent_encoded;
use super::{is_true, put_text};

/// The switch: files, or a control plane.
const TYPE: &str = "CONFIG_TYPE";

/// The name of a control plane, state of the world.
const SOTW: &str = "GRPC_XDS_SOTW";

const URL: &str = "CONFIG_GRPC_XDS_SERVER_URL";
const USE_TLS: &str = "CONFIG_GRPC_XDS_SERVER_USE_TLS";
const NODE_ID: &str = "CONFIG_GRPC_XDS_NODE_ID";
const HEADERS: &str = "CONFIG_GRPC_XDS_CLIENT_ADDITIONAL_HEADERS";
const SIZE_MAX: &str = "XDS_CLIENT_MAX_MSG_SIZE_IN_BYTES";

/// envoyproxy/ratelimit's own defaults.
const URL_DEFAULT: &str = "localhost:18000";
const NODE_ID_DEFAULT: &str = "default";

/// Puts the control plane over `layers`, if rules come from one.
pub(super) fn put(environment: &Environment, layers: &mut Layers, problems: &mut Vec<Problem>) {
    match environment.get(TYPE) {
        None => return,
        Some(text) if text.eq_ignore_ascii_case("FILE") => return,
        Some(text) if text.eq_ignore_ascii_case(SOTW) => {}
        Some(text) => {
            problems.push(Problem {
                place: TYPE.to_owned(),
                message: format!(
                    "`{text}` is not supported, and answers depend on it: write FILE or {SOTW}"
                ),
            });
            return;
        }
    }
    let is_encrypted = is_true(environment, USE_TLS, problems);
    let scheme = if is_encrypted { "xdss" } else { "xds" };
    let (name, url) = said(environment, URL, URL_DEFAULT);
    put_text(layers, &row::rules, name, format!("{scheme}://{url}"));
    let (name, id) = said(environment, NODE_ID, NODE_ID_DEFAULT);
    put_text(layers, &row::xds_node_id, name, id);
    for (setting, name) in [
        (&row::rules_ca, "CONFIG_GRPC_XDS_SERVER_TLS_CACERT"),
        (&row::rules_cert, "CONFIG_GRPC_XDS_CLIENT_TLS_CERT"),
        (&row::rules_key, "CONFIG_GRPC_XDS_CLIENT_TLS_KEY"),
        (&row::rules_server_name, "CONFIG_GRPC_XDS_SERVER_TLS_SAN"),
    ] {
        if let Some(text) = environment.get(name).filter(|_| is_encrypted) {
            put_text(layers, setting, name, text);
        }
    }
    if let Some(text) = environment.get(HEADERS) {
        put_text(layers, &row::xds_headers, HEADERS, headers(text));
    }
    if let Some(size) = environment.get(SIZE_MAX).filter(|size| *size != "0") {
        put_text(layers, &row::xds_response_max, SIZE_MAX, size);
    }
}

/// A variable that is set, or the switch with the default.
fn said<'a>(environment: &'a Environment, name: &'a str, default: &'a str) -> (&'a str, &'a str) {
    match environment.get(name) {
        Some(text) => (name, text),
        None => (TYPE, default),
    }
}

/// `name:value,…` as `name=value,…`.
fn headers(text: &str) -> String {
    let pairs = text.split(',').map(|pair| match pair.split_once(':') {
        Some((name, value)) => format!("{}={}", name.trim(), percent_encoded(value.trim())),
        None => pair.to_owned(),
    });
    pairs.collect::<Vec<_>>().join(",")
}
