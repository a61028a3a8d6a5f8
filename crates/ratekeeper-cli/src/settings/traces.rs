//! The collector of traces, and the share of requests that are traced.

use super::typed::Typed;
use super::value_error::ValueError;
use super::values;

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
    /// The share of the requests without a context that are traced, 0 to 1.
    pub(crate) sample_ratio: f64,
    /// The service that the spans are of.
    pub(crate) service_name: String,
}

impl Typed<'_> {
    pub(super) fn traces(&mut self) -> TraceSettings {
        TraceSettings {
            endpoint: self.get("otlp_endpoint", |text| values::maybe(text, collector)),
            sample_ratio: self.get("trace_sample_ratio", ratio),
            service_name: self.get("trace_service_name", service_name),
        }
    }
}

/// The address of a collector: `http://127.0.0.1:4317`.
fn collector(text: &str) -> Result<String, ValueError> {
    let wrong = || ValueError::Collector(values::masked(text).into());
    let place = text.strip_prefix("http://").ok_or_else(wrong)?;
    let place = place.strip_suffix('/').unwrap_or(place);
    let (host, port) = place.rsplit_once(':').ok_or_else(wrong)?;
    let is_host = |c: char| c.is_ascii_alphanumeric() || "-._[]:".contains(c);
    let has_port = port.parse::<u16>().is_ok_and(|port| port != 0);
    match !host.is_empty() && host.chars().all(is_host) && has_port {
        true => Ok(format!("http://{place}")),
        false => Err(wrong()),
    }
}

fn ratio(text: &str) -> Result<f64, ValueError> {
    let ratio = text.parse().ok();
    let ratio = ratio.filter(|ratio: &f64| (0.0..=1.0).contains(ratio));
    ratio.ok_or_else(|| ValueError::SampleRatio(text.into()))
}

fn service_name(text: &str) -> Result<String, ValueError> {
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
        ] {
            assert_eq!(collector(good).expect(good), expected);
        }
        for bad in [
            "",
            "127.0.0.1:4317",
            "https://collector:4317",
            "http://collector",
            "http://:4317",
            "http://collector:0",
            "http://collector:4317/v1/traces",
            "http://user:secret@collector:4317",
        ] {
            let refused = collector(bad).expect_err(bad).to_string();
            assert!(!refused.contains("secret"), "{refused}");
        }
    }

    #[test]
    fn a_ratio_is_a_share() {
        for (good, expected) in [("0", 0.0), ("1", 1.0), ("0.01", 0.01)] {
            assert!((ratio(good).expect(good) - expected).abs() < f64::EPSILON);
        }
        for bad in ["", "1.1", "-0.1", "NaN", "1%", "inf"] {
            assert!(ratio(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_service_has_a_name() {
        assert!(service_name("limits of the shop").is_ok());
        assert!(service_name("").is_err() && service_name("a\nb").is_err());
        assert!(service_name(&"a".repeat(SERVICE_NAME_MAX + 1)).is_err());
    }
}
