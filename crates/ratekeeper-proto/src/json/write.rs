//! Writes a response.

use prost_types::value::Kind;
use serde_json::{Map, Value, json};

use crate::envoy::config::core::v3::HeaderValue;
use crate::envoy::service::ratelimit::v3::RateLimitResponse;
use crate::envoy::service::ratelimit::v3::rate_limit_response::{
    Code, DescriptorStatus, RateLimit, rate_limit::Unit,
};

/// Writes a response.
///
/// This service never sets `raw_body`, `quota` or the `raw_value` of headers (see the `.proto`
/// file), so they are left out.
#[must_use]
pub fn write_response(response: &RateLimitResponse) -> String {
    let mut out = Object::default();
    out.code("overallCode", response.overall_code);
    out.list("statuses", &response.statuses, status);
    out.list(
        "responseHeadersToAdd",
        &response.response_headers_to_add,
        header,
    );
    out.list(
        "requestHeadersToAdd",
        &response.request_headers_to_add,
        header,
    );
    if let Some(metadata) = &response.dynamic_metadata {
        out.set("dynamicMetadata", structure(metadata));
    }
    Value::Object(out.0).to_string()
}

fn status(status: &DescriptorStatus) -> Value {
    let mut out = Object::default();
    out.code("code", status.code);
    if let Some(limit) = &status.current_limit {
        out.set("currentLimit", current_limit(limit));
    }
    out.number("limitRemaining", status.limit_remaining);
    if let Some(span) = &status.duration_until_reset {
        out.set("durationUntilReset", json!(duration(span)));
    }
    Value::Object(out.0)
}

fn current_limit(limit: &RateLimit) -> Value {
    let mut out = Object::default();
    out.text("name", &limit.name);
    out.number("requestsPerUnit", limit.requests_per_unit);
    let unit = Unit::try_from(limit.unit).ok();
    out.enumeration("unit", limit.unit, unit.map(|unit| unit.as_str_name()));
    Value::Object(out.0)
}

fn header(header: &HeaderValue) -> Value {
    let mut out = Object::default();
    out.text("key", &header.key);
    out.text("value", &header.value);
    Value::Object(out.0)
}

/// An object that leaves out zero values.
#[derive(Default)]
struct Object(Map<String, Value>);

impl Object {
    fn set(&mut self, name: &str, value: Value) {
        self.0.insert(name.to_owned(), value);
    }

    fn text(&mut self, name: &str, value: &str) {
        if !value.is_empty() {
            self.set(name, json!(value));
        }
    }

    fn number(&mut self, name: &str, value: u32) {
        if value != 0 {
            self.set(name, json!(value));
        }
    }

    /// Sets an enum's value by name, or by number if it has no name.
    fn enumeration(&mut self, name: &str, number: i32, value: Option<&str>) {
        if number != 0 {
            self.set(
                name,
                value.map_or_else(|| json!(number), |value| json!(value)),
            );
        }
    }

    fn code(&mut self, name: &str, number: i32) {
        let code = Code::try_from(number).ok();
        self.enumeration(name, number, code.map(|code| code.as_str_name()));
    }

    fn list<T>(&mut self, name: &str, items: &[T], write: impl Fn(&T) -> Value) {
        if !items.is_empty() {
            self.set(name, items.iter().map(write).collect());
        }
    }
}

/// Formats `27s`, `1.500s`, `-0.000001s`: a fraction has 3, 6 or 9 digits.
fn duration(span: &prost_types::Duration) -> String {
    let sign = if span.seconds < 0 || span.nanos < 0 {
        "-"
    } else {
        ""
    };
    let (seconds, nanos) = (span.seconds.unsigned_abs(), span.nanos.unsigned_abs());
    let fraction = match nanos {
        0 => String::new(),
        n if n % 1_000_000 == 0 => format!(".{:03}", n / 1_000_000),
        n if n % 1_000 == 0 => format!(".{:06}", n / 1_000),
        n => format!(".{n:09}"),
    };
    format!("{sign}{seconds}{fraction}s")
}

fn structure(fields: &prost_types::Struct) -> Value {
    fields
        .fields
        .iter()
        .map(|(name, value)| (name.clone(), any(value)))
        .collect()
}

fn any(value: &prost_types::Value) -> Value {
    match &value.kind {
        None | Some(Kind::NullValue(_)) => Value::Null,
        Some(Kind::BoolValue(value)) => json!(value),
        Some(Kind::NumberValue(number)) => plain_number(*number),
        Some(Kind::StringValue(text)) => json!(text),
        Some(Kind::StructValue(fields)) => structure(fields),
        Some(Kind::ListValue(list)) => list.values.iter().map(any).collect(),
    }
}

/// Writes a whole number without `.0`, as Go does.
#[expect(clippy::cast_possible_truncation, reason = "whole, and at most 2^53")]
fn plain_number(number: f64) -> Value {
    const EXACT: f64 = 9_007_199_254_740_992.0;
    if number.fract() == 0.0 && number.abs() <= EXACT {
        json!(number as i64)
    } else {
        json!(number)
    }
}
