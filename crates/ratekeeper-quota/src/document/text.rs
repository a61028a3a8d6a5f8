//! Times and descriptors as texts.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

use ratekeeper_core::Timestamp;
use ratekeeper_rules::time::{self, NotATime};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use utoipa::openapi::schema::{KnownFormat, SchemaFormat, Type};
use utoipa::openapi::{ArrayBuilder, ObjectBuilder, OneOfBuilder, RefOr, Schema};
use utoipa::{PartialSchema, ToSchema};

/// The descriptor of a limit of the tenant as a whole.
pub const WHOLE_TENANT: &str = "default";

/// The entries of a descriptor: one as a text, several as a list.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct DescriptorText(pub Vec<String>);

/// A time as in `2027-01-31T00:00:00Z`; also read from a plain date.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rfc3339(pub Timestamp);

impl fmt::Display for Rfc3339 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&time::rfc3339(self.0), f)
    }
}

impl FromStr for Rfc3339 {
    type Err = NotATime;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        time::parse(text).map(Self)
    }
}

impl Serialize for Rfc3339 {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Rfc3339 {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

impl FromStr for DescriptorText {
    type Err = serde_json::Error;

    /// Reads one entry, or a JSON list of several.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Ok(match text {
            "" | WHOLE_TENANT => Self::default(),
            list if list.starts_with('[') => Self(serde_json::from_str(list)?),
            one => Self(vec![one.to_owned()]),
        })
    }
}

impl fmt::Display for DescriptorText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.as_slice() {
            [] => f.write_str(WHOLE_TENANT),
            [one] if !is_ambiguous(one) && !one.starts_with('[') => f.write_str(one),
            several => write!(f, "{}", serde_json::Value::from(several)),
        }
    }
}

impl Serialize for DescriptorText {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0.as_slice() {
            [] => serializer.serialize_str(WHOLE_TENANT),
            [one] if !is_ambiguous(one) => serializer.serialize_str(one),
            several => several.serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for DescriptorText {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(
            untagged,
            expecting = "expected an entry as key:value, or a list of entries"
        )]
        enum Either {
            One(String),
            Several(Vec<String>),
        }
        Ok(match Either::deserialize(deserializer)? {
            Either::One(one) if is_ambiguous(&one) => Self::default(),
            Either::One(one) => Self(vec![one]),
            Either::Several(several) => Self(several),
        })
    }
}

/// Returns true for an entry that, without the brackets of a list, would stand for the tenant as a whole.
fn is_ambiguous(entry: &str) -> bool {
    entry.is_empty() || entry == WHOLE_TENANT
}

impl PartialSchema for Rfc3339 {
    fn schema() -> RefOr<Schema> {
        let format = SchemaFormat::KnownFormat(KnownFormat::DateTime);
        ObjectBuilder::new()
            .schema_type(Type::String)
            .format(Some(format))
            .into()
    }
}

impl ToSchema for Rfc3339 {
    fn name() -> Cow<'static, str> {
        "Time".into()
    }
}

impl PartialSchema for DescriptorText {
    fn schema() -> RefOr<Schema> {
        let text = || ObjectBuilder::new().schema_type(Type::String);
        OneOfBuilder::new()
            .item(text())
            .item(ArrayBuilder::new().items(text()))
            .into()
    }
}

impl ToSchema for DescriptorText {
    fn name() -> Cow<'static, str> {
        "OverrideDescriptor".into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_descriptor_is_read_as_it_is_written() {
        for entries in [
            &[][..],
            &["endpoint:POST /orders"],
            &["a:1", "b:2"],
            // A key without a value that is called as the tenant as a whole is.
            &["default"],
            &["[a"],
            &["a: b "],
        ] {
            let text = DescriptorText(entries.iter().map(ToString::to_string).collect());
            let json = serde_json::to_string(&text).expect("texts are JSON");
            let read: DescriptorText = serde_json::from_str(&json).expect("it was written so");
            assert_eq!(read, text, "{json}");
            let shown = text.to_string();
            assert_eq!(shown.parse::<DescriptorText>().ok(), Some(text), "{shown}");
        }
    }
}
