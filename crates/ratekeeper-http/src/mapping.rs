//! Maps requests to descriptors.

use std::borrow::Cow;
use std::str::FromStr;

use http::HeaderName;
use ratekeeper_rules::RuleSet;
use serde::Deserialize;

use crate::described::Described;
use crate::view::View;
use crate::{IPV6_PREFIX, Malformed, ValueSource, ValueSourceError};

/// The most descriptors of a mapping.
const DESCRIPTORS_MAX: usize = 100;
/// The most entries of one descriptor.
const ENTRIES_MAX: usize = 32;

/// The descriptors of a request: a list of descriptors, each a list of entries.
///
/// Deserialized from settings, where either key may be left out:
///
/// ```yaml
/// ipv6_prefix: 64                # optional
/// descriptors:
///   - - { key: api_key, from: header:x-api-key }
///     - { key: endpoint, from: endpoint }
///   - - { key: remote_address, from: remote_address }
///     - { key: host, from: host, default: unknown }
///   - - { key: global, value: all }
/// ```
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
#[serde(try_from = "Raw")]
pub struct Mapping {
    descriptors: Vec<Vec<MappedEntry>>,
    ipv6_prefix: u8,
}

/// An entry of a descriptor: a key, and the source of its value.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
#[serde(try_from = "RawField")]
pub struct MappedEntry {
    /// The key in rules.
    pub key: Box<str>,
    /// The source; None for a value that is always `default`.
    pub source: Option<ValueSource>,
    /// The value if the source is missing. Without a default, the whole descriptor is then left
    /// out.
    pub default: Option<Box<str>>,
}

/// The fault of a [`Mapping`]. Its text begins with the field where that is known.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MappingError {
    /// There is no descriptor, or too many.
    #[error("descriptors: expected 1 to {DESCRIPTORS_MAX} of them")]
    Descriptors,
    /// The descriptor of this number has no entry, or too many.
    #[error("descriptors[{0}]: expected 1 to {ENTRIES_MAX} entries")]
    Entries(usize),
    /// No IPv6 network has this prefix.
    #[error("ipv6_prefix: {0} is not 1 to 128")]
    Prefix(u8),
    /// An entry has no key.
    #[error("the key must not be empty")]
    EmptyKey,
    /// An entry has a fixed value, and one instead of it.
    #[error("a fixed value needs no default")]
    ValueAndDefault,
    /// An entry has a fixed value, and one from the request.
    #[error("write `from` or `value`, not both")]
    FromAndValue,
    /// An entry has no value.
    #[error("it has no value; write `from: header:x-api-key` or `value: text`")]
    NoValue,
    /// The value of an entry comes from no part of a request.
    #[error(transparent)]
    Source(#[from] ValueSourceError),
}

impl Mapping {
    /// A mapping to these descriptors, in which IPv6 addresses count by networks of `ipv6_prefix`
    /// bits.
    ///
    /// # Errors
    /// There is no descriptor, or one without entries; there are more than 100, or 32 entries in
    /// one; the prefix is not 1 to 128.
    pub fn new(descriptors: Vec<Vec<MappedEntry>>, ipv6_prefix: u8) -> Result<Self, MappingError> {
        if descriptors.is_empty() || descriptors.len() > DESCRIPTORS_MAX {
            return Err(MappingError::Descriptors);
        }
        if let Some(at) = descriptors
            .iter()
            .position(|fields| fields.is_empty() || fields.len() > ENTRIES_MAX)
        {
            return Err(MappingError::Entries(at));
        }
        if !(1..=128).contains(&ipv6_prefix) {
            return Err(MappingError::Prefix(ipv6_prefix));
        }
        Ok(Self {
            descriptors,
            ipv6_prefix,
        })
    }

    /// The descriptors, each a list of entries.
    #[must_use]
    pub fn descriptors(&self) -> &[Vec<MappedEntry>] {
        &self.descriptors
    }

    /// The prefix length by which IPv6 addresses count.
    #[must_use]
    pub const fn ipv6_prefix(&self) -> u8 {
        self.ipv6_prefix
    }

    /// Drops the descriptors whose first key no rule can match, according to `matches`, so that
    /// their values need not be looked up.
    pub fn retain_first_keys(&mut self, matches: impl Fn(&str) -> bool) {
        let may_match =
            |fields: &[MappedEntry]| fields.first().is_some_and(|field| matches(&field.key));
        self.descriptors.retain(|fields| may_match(fields));
    }

    /// The descriptors of the request of `view`, with paths as `rules` count them.
    pub(crate) fn describe<'a>(
        &'a self,
        view: &View<'a>,
        rules: &RuleSet,
    ) -> Result<Described<'a>, Malformed> {
        let mut described = Described::default();
        for fields in &self.descriptors {
            let entries = fields.iter().map(|field| {
                let value = field.value(view, self.ipv6_prefix, rules);
                (&*field.key, value)
            });
            described.push_if_whole(entries)?;
        }
        Ok(described)
    }
}

/// A descriptor each for the client's address, the API key, the method and the path.
impl Default for Mapping {
    fn default() -> Self {
        let one = |key: &str, source| {
            vec![MappedEntry {
                key: key.into(),
                source: Some(source),
                default: None,
            }]
        };
        let api_key = HeaderName::from_static("x-api-key");
        Self {
            descriptors: vec![
                one("remote_address", ValueSource::RemoteAddress),
                one("api_key", ValueSource::Header(api_key)),
                one("method", ValueSource::Method),
                one("path", ValueSource::Path),
            ],
            ipv6_prefix: IPV6_PREFIX,
        }
    }
}

impl MappedEntry {
    fn value<'a>(
        &'a self,
        view: &View<'a>,
        ipv6_prefix: u8,
        rules: &RuleSet,
    ) -> Result<Option<Cow<'a, str>>, Malformed> {
        let found = match &self.source {
            Some(source) => {
                let found = view.value(source, ipv6_prefix)?;
                found.map(|value| match source.is_of_path() {
                    true => source.counted(value, rules.path_folding_of(&self.key)),
                    false => value,
                })
            }
            None => None,
        };
        Ok(found.or_else(|| self.default.as_deref().map(Cow::Borrowed)))
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Raw {
    descriptors: Option<Vec<Vec<MappedEntry>>>,
    ipv6_prefix: Option<u8>,
}

impl TryFrom<Raw> for Mapping {
    type Error = MappingError;

    fn try_from(raw: Raw) -> Result<Self, MappingError> {
        let usual = Self::default();
        Self::new(
            raw.descriptors.unwrap_or(usual.descriptors),
            raw.ipv6_prefix.unwrap_or(usual.ipv6_prefix),
        )
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawField {
    key: String,
    from: Option<String>,
    value: Option<Text>,
    default: Option<Text>,
}

/// A value in the form that people write it: `v1`, `404`, `true`.
#[derive(Deserialize)]
#[serde(untagged)]
enum Text {
    Words(String),
    Number(i64),
    Switch(bool),
}

impl From<Text> for Box<str> {
    fn from(text: Text) -> Self {
        match text {
            Text::Words(text) => text.into(),
            Text::Number(number) => number.to_string().into(),
            Text::Switch(switch) => switch.to_string().into(),
        }
    }
}

impl TryFrom<RawField> for MappedEntry {
    type Error = MappingError;

    fn try_from(raw: RawField) -> Result<Self, MappingError> {
        if raw.key.is_empty() {
            return Err(MappingError::EmptyKey);
        }
        let (source, default) = match (raw.from, raw.value, raw.default) {
            (Some(from), None, default) => (Some(ValueSource::from_str(&from)?), default),
            (None, Some(value), None) => (None, Some(value)),
            (None, Some(_), Some(_)) => return Err(MappingError::ValueAndDefault),
            (Some(_), Some(_), _) => return Err(MappingError::FromAndValue),
            (None, None, _) => {
                return Err(MappingError::NoValue);
            }
        };
        Ok(Self {
            key: raw.key.into(),
            source,
            default: default.map(Into::into),
        })
    }
}

#[cfg(test)]
mod tests;
