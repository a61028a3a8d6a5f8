//! Fields that are written as protojson writes them.

use prost_types::value::Kind;
use prost_types::{Duration, Struct};
use serde::{Serialize, Serializer};
use serde_json::{Value, json};

use crate::envoy::service::ratelimit::v3::rate_limit_response::{Code, rate_limit::Unit};

/// Returns true for a value that is left out.
pub(crate) fn is_zero<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// Writes a code by its name, or as a number if it has none.
pub(crate) fn code<S: Serializer>(number: &i32, serializer: S) -> Result<S::Ok, S::Error> {
    let code = Code::try_from(*number).ok();
    named(code.map(|code| code.as_str_name()), *number, serializer)
}

/// Writes a unit by its name, or as a number if it has none.
pub(crate) fn unit<S: Serializer>(number: &i32, serializer: S) -> Result<S::Ok, S::Error> {
    let unit = Unit::try_from(*number).ok();
    named(unit.map(|unit| unit.as_str_name()), *number, serializer)
}

fn named<S: Serializer>(name: Option<&str>, number: i32, serializer: S) -> Result<S::Ok, S::Error> {
    match name {
        Some(name) => serializer.serialize_str(name),
        None => serializer.serialize_i32(number),
    }
}

/// Writes `27s`, `1.500s`, `-0.000001s`: a fraction has 3, 6 or 9 digits.
pub(crate) fn duration<S: Serializer>(
    span: &Option<Duration>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    let Duration { seconds, nanos } = span.unwrap_or_default();
    let sign = match seconds < 0 || nanos < 0 {
        true => "-",
        false => "",
    };
    let (seconds, nanos) = (seconds.unsigned_abs(), nanos.unsigned_abs());
    let fraction = match nanos {
        0 => String::new(),
        n if n % 1_000_000 == 0 => format!(".{:03}", n / 1_000_000),
        n if n % 1_000 == 0 => format!(".{:06}", n / 1_000),
        n => format!(".{n:09}"),
    };
    serializer.collect_str(&format_args!("{sign}{seconds}{fraction}s"))
}

/// Writes any JSON.
pub(crate) fn structure<S: Serializer>(
    fields: &Option<Struct>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    fields.as_ref().map(object).serialize(serializer)
}

fn object(fields: &Struct) -> Value {
    let fields = fields.fields.iter();
    fields
        .map(|(name, value)| (name.clone(), any(value)))
        .collect()
}

fn any(value: &prost_types::Value) -> Value {
    match &value.kind {
        None | Some(Kind::NullValue(_)) => Value::Null,
        Some(Kind::BoolValue(value)) => json!(value),
        Some(Kind::NumberValue(number)) => plain_number(*number),
        Some(Kind::StringValue(text)) => json!(text),
        Some(Kind::StructValue(fields)) => object(fields),
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
