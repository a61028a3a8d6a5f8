//! The settings of the identification of callers.

use std::mem::{Discriminant, discriminant};

use serde::Deserialize;

use super::countries::{Countries, CountryConfig};
use super::tokens::{JwtConfig, Tokens};
use super::{Identity, NOBODY, NOBODY_KEY, Named};
use crate::mapping::IPV6_PREFIX;
use crate::source::{ValueSource, ValueSourceError};

/// The most parts of a request to try.
const SOURCES_MAX: usize = 16;

/// The settings; [`Identity::open`] turns them into an [`Identity`].
///
/// ```yaml
/// from: [ 'header:x-api-key', 'path:/v1/organizations/{org}/**', remote_address ]
/// default: anonymous             # callers that none of these identifies
/// known: [ acme, globex ]        # optional: any other name counts as the default
/// ipv6_prefix: 64                # optional
/// jwt: { jwks_file: /etc/ratekeeper/jwks.json, audience: api }     # optional: for `claim:NAME`
/// country: { header: cf-ipcountry, database: country.mmdb }        # optional: for `country`
/// ```
#[derive(Clone, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct IdentityConfig {
    from: Option<Vec<RawNamed>>,
    default: Option<Box<str>>,
    known: Option<Vec<Box<str>>>,
    ipv6_prefix: Option<u8>,
    jwt: Option<JwtConfig>,
    country: Option<CountryConfig>,
}

/// `header:x-org`, or an object that adds a key for the entry.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
#[serde(untagged)]
enum RawNamed {
    Source(String),
    Keyed(Keyed),
}

#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Keyed {
    from: String,
    key: Box<str>,
}

/// An error in an [`IdentityConfig`], or in a file that it names.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{place}: {message}")]
pub struct IdentityError {
    /// The key of the settings.
    pub place: String,
    /// The problem, and a suggested fix.
    pub message: String,
}

impl IdentityError {
    pub(crate) fn new(place: impl Into<String>, message: impl Into<String>) -> Self {
        Self {
            place: place.into(),
            message: message.into(),
        }
    }
}

impl Identity {
    /// Creates the identity that `config` describes. Reads the files that it names.
    ///
    /// # Errors
    /// The first error in the settings or in a file.
    pub fn open(config: &IdentityConfig) -> Result<Self, IdentityError> {
        let sources = match &config.from {
            None => Self::default().sources,
            Some(list) if list.is_empty() || list.len() > SOURCES_MAX => {
                let message = format!("expected 1 to {SOURCES_MAX} parts of a request");
                return Err(IdentityError::new("from", message));
            }
            Some(list) => {
                let named = list.iter().enumerate();
                let named = named.map(|(at, raw)| {
                    let refused = |error: NamedError| {
                        IdentityError::new(format!("from[{at}]"), error.to_string())
                    };
                    raw.named().map_err(refused)
                });
                let named = named.collect::<Result<Vec<_>, _>>()?;
                keep_apart(&named, list)?;
                named
            }
        };
        let ipv6_prefix = config.ipv6_prefix.unwrap_or(IPV6_PREFIX);
        if !(1..=128).contains(&ipv6_prefix) {
            let message = format!("{ipv6_prefix} is not 1 to 128");
            return Err(IdentityError::new("ipv6_prefix", message));
        }
        let default: Box<str> = config.default.clone().unwrap_or_else(|| NOBODY.into());
        if default.is_empty() {
            return Err(IdentityError::new(
                "default",
                "it is empty; write `default: anonymous`",
            ));
        }
        for named in &sources {
            let (is_missing, key) = match &named.source {
                ValueSource::Claim(_) => (config.jwt.is_none(), "jwt"),
                ValueSource::Country => (config.country.is_none(), "country"),
                _ => continue,
            };
            if is_missing {
                let message = format!("`{}` needs `{key}` beside it", named.source);
                return Err(IdentityError::new("from", message));
            }
        }
        let known = config.known.as_ref();
        let tokens = config.jwt.as_ref().map(Tokens::open).transpose()?;
        let countries = config.country.as_ref().map(Countries::open).transpose()?;
        Ok(Self {
            sources,
            default,
            known: known.map(|names| names.iter().cloned().collect()),
            ipv6_prefix,
            tokens: tokens.map(Into::into),
            countries: countries.map(Into::into),
        })
    }
}

/// Refuses names of different kinds under one key, unless the settings name that key explicitly.
fn keep_apart(named: &[Named], list: &[RawNamed]) -> Result<(), IdentityError> {
    for (at, (own, raw)) in named.iter().zip(list).enumerate() {
        let refused = |message| Err(IdentityError::new(format!("from[{at}]"), message));
        let advice = format!("write {{ from: '{}', key: NAME }}", own.source);
        if *own.key == *NOBODY_KEY {
            return refused(format!(
                "the key `{NOBODY_KEY}` is for callers whom nothing names; {advice}"
            ));
        }
        let is_written = |raw: &RawNamed| matches!(raw, RawNamed::Keyed(_));
        let mut before = named.iter().zip(list).take(at);
        let other = before.find(|(other, other_raw)| {
            other.key == own.key
                && kind(&other.source) != kind(&own.source)
                && !is_written(raw)
                && !is_written(other_raw)
        });
        if let Some((other, _)) = other {
            return refused(format!(
                "`{}` and `{}` both name by the key `{}`, so that one could be taken for the other; {advice}",
                own.source, other.source, own.key
            ));
        }
    }
    Ok(())
}

/// The kind of name of a source: names of one kind are equal in any place.
fn kind(source: &ValueSource) -> Discriminant<ValueSource> {
    discriminant(match source {
        // All of them carry a secret, and its holder is its owner.
        ValueSource::Header(_) | ValueSource::Query(_) | ValueSource::Cookie(_) => {
            &ValueSource::Bearer
        }
        other => other,
    })
}

/// The fault of one source of names.
#[derive(Debug, thiserror::Error)]
enum NamedError {
    #[error("the key is empty")]
    EmptyKey,
    #[error("`identity` is what this list says; name a part of the request")]
    Identity,
    #[error(transparent)]
    Source(#[from] ValueSourceError),
}

impl RawNamed {
    fn named(&self) -> Result<Named, NamedError> {
        let (from, key) = match self {
            Self::Source(from) => (from, None),
            Self::Keyed(keyed) if keyed.key.is_empty() => return Err(NamedError::EmptyKey),
            Self::Keyed(keyed) => (&keyed.from, Some(keyed.key.clone())),
        };
        let source: ValueSource = from.parse()?;
        if source == ValueSource::Identity {
            return Err(NamedError::Identity);
        }
        let named = Named::from(source);
        Ok(Named {
            key: key.unwrap_or(named.key),
            ..named
        })
    }
}
