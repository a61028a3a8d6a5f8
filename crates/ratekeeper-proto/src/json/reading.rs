//! Fields that are read as protojson reads them: `null` is absent, and numbers may be texts.

use std::borrow::Cow;

use serde::de::{Deserialize, Deserializer, Error};
use serde_json::Number;

use super::Object;
use crate::envoy::r#type::v3::RateLimitUnit;
use crate::text;

/// Reads a value, or null as its default.
pub(crate) fn or_null<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de> + Default,
{
    Option::deserialize(deserializer).map(Option::unwrap_or_default)
}

/// Reads a key or a value of an entry, as any protocol reads it.
pub(crate) fn entry_text<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    let text: String = or_null(deserializer)?;
    Ok(match text::is_plain(&text) {
        true => text,
        false => text::read(text.as_bytes()).into_owned(),
    })
}

/// Reads a message.
pub(crate) fn message<'de, D, T>(deserializer: D) -> Result<Option<T>, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
{
    let read = Option::<Object<T>>::deserialize(deserializer)?;
    Ok(read.map(|Object(message)| message))
}

/// Reads a list of messages.
pub(crate) fn messages<'de, D, T>(deserializer: D) -> Result<Vec<T>, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
{
    let read: Vec<Object<T>> = or_null(deserializer)?;
    Ok(read.into_iter().map(|Object(message)| message).collect())
}

/// Reads an integer, if there is one.
pub(crate) fn some_integer<'de, D, T>(deserializer: D) -> Result<Option<T>, D::Error>
where
    D: Deserializer<'de>,
    T: TryFrom<i128>,
{
    let Some(written) = Option::<Written<'_>>::deserialize(deserializer)? else {
        return Ok(None);
    };
    let value = written.whole().and_then(|value| T::try_from(value).ok());
    let most = u64::MAX >> (64 - 8 * size_of::<T>());
    let value = value.ok_or_else(|| format!("expected an integer from 0 to {most}"));
    value.map(Some).map_err(Error::custom)
}

/// Reads an integer.
pub(crate) fn integer<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: TryFrom<i128> + Default,
{
    some_integer(deserializer).map(Option::unwrap_or_default)
}

/// Reads a unit by name or number, also an undefined number: the limiter judges it.
pub(crate) fn unit<'de, D: Deserializer<'de>>(deserializer: D) -> Result<i32, D::Error> {
    let Some(written) = Option::<Written<'_>>::deserialize(deserializer)? else {
        return Ok(0);
    };
    let value = match &written {
        Written::Text(name) => RateLimitUnit::from_str_name(name).map(|unit| unit as i32),
        Written::Number(_) => written.whole().and_then(|value| i32::try_from(value).ok()),
    };
    let expected = "expected SECOND, MINUTE, HOUR, DAY, MONTH, YEAR or a number";
    value.ok_or_else(|| Error::custom(expected))
}

/// A number as it is written.
#[derive(serde::Deserialize)]
#[serde(untagged, expecting = "expected an integer")]
enum Written<'a> {
    Number(Number),
    #[serde(borrow)]
    Text(Cow<'a, str>),
}

impl Written<'_> {
    /// A whole number, written as `7`, `7.0` or `0.7e1`, or as a string of one of these.
    fn whole(&self) -> Option<i128> {
        match self {
            Self::Number(number) => whole(number),
            // A string must hold a valid JSON number: no spaces, no plus sign.
            Self::Text(text) if text.contains(char::is_whitespace) => None,
            Self::Text(text) => whole(&serde_json::from_str(text).ok()?),
        }
    }
}

#[expect(clippy::cast_possible_truncation, reason = "at most 10^20")]
fn whole(number: &Number) -> Option<i128> {
    if let Some(value) = number.as_i128() {
        return Some(value);
    }
    let value = number.as_f64()?;
    // In this range, a double without a fraction converts exactly.
    (value.fract() == 0.0 && value.abs() <= 1e20).then_some(value as i128)
}
