//! The collector of traces, and the share of requests that are traced.

use super::checks::Checks;
use super::value_error::ValueError;
use super::{TlsSettings, values};
use http::{HeaderMap, HeaderName, HeaderValue};
use ratekeeper_tls::TlsFiles;
use std::path::PathBuf;

/// The longest name of a service, in bytes.
const SERVICE_NAME_MAX: usize = 128;

/// The settings of traces.
#[derive(Debug)]
#[cfg_attr(
    not(feature = "traces"),
    expect(dead_code, reason = "a build without them only refuses")
)]
pub(crate) struct TraceSettings {
    /// The collector's address; `None` if nothing is traced.
    pub(crate) endpoint: Option<String>,
    /// The protocol that it takes spans over.
    pub(crate) protocol: TraceProtocol,
    /// The files for a collector that is reached over TLS.
    pub(crate) tls: TlsFiles,
    pub(crate) tls_settings: TlsSettings,
    /// Headers for the collector; all of them are secrets.
    pub(crate) headers: HeaderMap,
    /// The file with more of them, in the form of the setting.
    pub(crate) headers_file: Option<PathBuf>,
    /// The share of the requests without a context that are traced, 0 to 1.
    pub(crate) sample_ratio: f64,
    /// The service that the spans are of.
    pub(crate) service_name: String,
}

/// A protocol of collectors.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum TraceProtocol {
    /// gRPC.
    Grpc,
    /// Protobuf in the body of a POST.
    HttpProtobuf,
}

/// The words for those protocols, which are OpenTelemetry's.
pub(super) const PROTOCOLS: [(&str, TraceProtocol); 2] = [
    ("grpc", TraceProtocol::Grpc),
    ("http/protobuf", TraceProtocol::HttpProtobuf),
];

/// The most headers for the collector.
const HEADERS_MAX: usize = 32;

impl Checks<'_> {
    pub(super) fn traces(&mut self) -> TraceSettings {
        let values = self.values;
        let files = [&values.otlp_ca, &values.otlp_cert, &values.otlp_key];
        let [ca, cert, key] = files;
        let headers = [&values.otlp_headers.said, &values.otlp_headers_file.said];
        match values.otlp_endpoint.as_deref() {
            None => {
                let need_collector = headers.into_iter().chain(files.map(|file| &file.said));
                for said in need_collector.filter(|said| said.has_value()) {
                    self.lacks::<()>(said, &values.otlp_endpoint.said);
                }
            }
            Some(endpoint) if endpoint.starts_with("http://") => {
                let plain =
                    "it means nothing for a collector that is not encrypted; write https://";
                for file in files.into_iter().filter(|file| file.said.has_value()) {
                    self.refuse(&file.said, plain);
                }
            }
            Some(_) => {}
        }
        let has_path = |endpoint: &str| endpoint.matches('/').count() > 2;
        let is_grpc = *values.otlp_protocol == TraceProtocol::Grpc;
        if is_grpc && values.otlp_endpoint.as_deref().is_some_and(has_path) {
            let message =
                "gRPC has no paths; leave it out, or write `otlp_protocol: http/protobuf`";
            self.refuse(&values.otlp_endpoint.said, message);
        }
        TraceSettings {
            protocol: *values.otlp_protocol,
            endpoint: values.otlp_endpoint.clone(),
            tls: self.client_tls(ca, cert, key),
            tls_settings: TlsSettings::of("otlp_"),
            headers: values.otlp_headers.clone(),
            headers_file: values.otlp_headers_file.clone(),
            sample_ratio: *values.trace_sample_ratio,
            service_name: values.trace_service_name.clone(),
        }
    }
}

/// The address of a collector: `http://127.0.0.1:4317`, `https://otlp.example.com:443`, with a path for one over HTTP.
pub(super) fn collector(text: &str) -> Result<String, ValueError> {
    let wrong = || ValueError::Collector(values::masked(text).into());
    let (scheme, rest) = text.split_once("://").ok_or_else(wrong)?;
    if !matches!(scheme, "http" | "https") {
        return Err(wrong());
    }
    let rest = rest.strip_suffix('/').unwrap_or(rest);
    let (place, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    let is_path = |byte: u8| byte.is_ascii_graphic() && !matches!(byte, b'?' | b'#' | b'@');
    match values::names_port(place) && path.bytes().all(is_path) {
        true => Ok(format!("{scheme}://{rest}")),
        false => Err(wrong()),
    }
}

/// The headers in `text`, in the form of `OTEL_EXPORTER_OTLP_HEADERS`: `NAME=VALUE`, with commas or new lines between
/// them.
pub(crate) fn trace_headers(text: &str) -> Result<HeaderMap, ValueError> {
    let mut headers = HeaderMap::new();
    let pairs = text.split([',', '\n']).map(str::trim);
    for pair in pairs.filter(|pair| !pair.is_empty()) {
        let (name, value) = pair.split_once('=').ok_or(ValueError::TraceHeaders)?;
        let name = HeaderName::try_from(name.trim());
        let name = name.map_err(|_| ValueError::TraceHeaders)?;
        let value = unescaped(value.trim()).and_then(|value| HeaderValue::try_from(value).ok());
        let mut value = value.ok_or(ValueError::TraceHeaders)?;
        value.set_sensitive(true);
        headers.append(name, value);
    }
    match headers.len() <= HEADERS_MAX {
        true => Ok(headers),
        false => Err(ValueError::TraceHeaders),
    }
}

/// The text with `%XX` replaced by the characters that they stand for.
fn unescaped(text: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut parts = text.split('%');
    bytes.extend(parts.next()?.bytes());
    for part in parts {
        let (digits, rest) = part.split_at_checked(2)?;
        // A sign before a digit is no digit.
        let is_hex = digits.bytes().all(|byte| byte.is_ascii_hexdigit());
        bytes.push(u8::from_str_radix(digits, 16).ok().filter(|_| is_hex)?);
        bytes.extend(rest.bytes());
    }
    Some(bytes)
}

pub(super) fn service_name(text: &str) -> Result<String, ValueError> {
    let is_fit = |c: char| !c.is_control();
    match (1..=SERVICE_NAME_MAX).contains(&text.len()) && text.chars().all(is_fit) {
        true => Ok(text.to_owned()),
        false => Err(ValueError::ServiceName),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn collectors_have_a_scheme_a_host_and_a_port() {
        for (good, expected) in [
            ("http://127.0.0.1:4317", "http://127.0.0.1:4317"),
            ("http://otel-collector:4317/", "http://otel-collector:4317"),
            ("http://[::1]:4317", "http://[::1]:4317"),
            (
                "https://otlp.example.com:443/otlp/v1/traces",
                "https://otlp.example.com:443/otlp/v1/traces",
            ),
        ] {
            assert_eq!(collector(good).expect(good), expected);
        }
        for bad in [
            "",
            "127.0.0.1:4317",
            "grpc://collector:4317",
            "https://collector",
            "http://collector",
            "http://:4317",
            "http://collector:0",
            "http://collector:4317/v1/traces?token=secret",
            "http://user:secret@collector:4317",
        ] {
            let refused = collector(bad).expect_err(bad).to_string();
            assert!(!refused.contains("secret"), "{refused}");
        }
    }

    #[test]
    fn a_ratio_is_a_share() {
        let ratio = |text| values::number(0.0_f64..=1.0)(text);
        for (good, expected) in [("0", 0.0), ("1", 1.0), ("0.01", 0.01)] {
            assert!((ratio(good).expect(good) - expected).abs() < f64::EPSILON);
        }
        for bad in ["", "1.1", "-0.1", "NaN", "1%", "inf"] {
            assert!(ratio(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn headers_are_pairs_and_secrets() {
        let text = "api-key=a%2Cb%20c, x-team = shop\n\nauthorization=Basic Zm9vOmJhcg==\n";
        let found = trace_headers(text).expect("they are headers");
        assert_eq!(found.len(), 3);
        for (name, value) in [
            ("api-key", "a,b c"),
            ("x-team", "shop"),
            ("authorization", "Basic Zm9vOmJhcg=="),
        ] {
            assert_eq!(found[name], value);
        }
        assert!(!format!("{found:?}").contains("shop"), "{found:?}");
        assert!(trace_headers("").expect("there need not be any").is_empty());
        let many = "a=1,".repeat(HEADERS_MAX + 1);
        for bad in [
            "secret",
            "a b=secret",
            "a=secret%2",
            "a=secret%+1",
            "a=secret%0A",
            &many,
        ] {
            let refused = trace_headers(bad).expect_err(bad).to_string();
            assert!(!refused.contains("secret"), "{refused}");
        }
    }

    #[test]
    fn a_service_has_a_name() {
        assert!(service_name("limits of the shop").is_ok());
        assert!(service_name("").is_err() && service_name("a\nb").is_err());
        assert!(service_name(&"a".repeat(SERVICE_NAME_MAX + 1)).is_err());
    }
}
