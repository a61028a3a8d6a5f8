//! The time that a client will wait for its answer.

use std::time::Duration;

use http::HeaderMap;

/// Reads the client's patience from `grpc-timeout` or `x-envoy-expected-rq-timeout-ms`; None if it has neither, or if it makes no
/// sense.
pub(super) fn patience(headers: &HeaderMap) -> Option<Duration> {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    match text("grpc-timeout") {
        Some(timeout) => grpc_timeout(timeout),
        None => {
            let millis = text("x-envoy-expected-rq-timeout-ms")?.parse().ok()?;
            Some(Duration::from_millis(millis))
        }
    }
}

/// Parses a gRPC timeout: at most eight digits and a unit.
fn grpc_timeout(text: &str) -> Option<Duration> {
    let (digits, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    if digits.len() > 8 || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let value: u64 = digits.parse().ok()?;
    Some(match unit {
        "H" => Duration::from_secs(value * 3_600),
        "M" => Duration::from_secs(value * 60),
        "S" => Duration::from_secs(value),
        "m" => Duration::from_millis(value),
        "u" => Duration::from_micros(value),
        "n" => Duration::from_nanos(value),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(name: &'static str, value: &'static str) -> Option<Duration> {
        let mut headers = HeaderMap::new();
        headers.insert(name, http::HeaderValue::from_static(value));
        patience(&headers)
    }

    #[test]
    fn both_headers_are_read() {
        assert_eq!(
            of("grpc-timeout", "99999999H"),
            Some(Duration::from_secs(359_999_996_400))
        );
        assert_eq!(of("grpc-timeout", "250m"), Some(Duration::from_millis(250)));
        assert_eq!(of("grpc-timeout", "0S"), Some(Duration::ZERO));
        assert_eq!(
            of("x-envoy-expected-rq-timeout-ms", "15"),
            Some(Duration::from_millis(15))
        );
    }

    #[test]
    fn nonsense_is_no_deadline() {
        for text in ["", "S", "1", "1s", "-1S", "123456789S"] {
            assert_eq!(of("grpc-timeout", text), None, "{text}");
        }
        assert_eq!(of("x-envoy-expected-rq-timeout-ms", "-1"), None);
        assert_eq!(patience(&HeaderMap::new()), None);
    }
}
