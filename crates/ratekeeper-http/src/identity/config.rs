//! The settings of the identification of callers.

use std::mem::{Discriminant, discriminant};

use serde::Deserialize;

use super::api_keys::{ApiKeys, ApiKeysConfig};
use super::countries::{Countries, CountryConfig};
use super::error::{IdentityError, IdentityFault};
use super::tokens::{JwtConfig, Tokens};
use super::{ANONYMOUS, ANONYMOUS_KEY, Identity, Named};
use crate::IPV6_PREFIX;
use crate::credentials::AmbiguousCookies;
use crate::source::ValueSource;

/// The most parts of a request to try.
const SOURCES_MAX: usize = 16;

/// The settings; [`Identity::open`] turns them into an [`Identity`].
///
/// ```yaml
/// from: [ 'header:x-api-key', 'path:/v1/organizations/{org}/**', remote_address ]
/// default: anonymous             # callers that none of these identifies
/// known: [ acme, globex ]        # optional: any other name counts as the default
/// ipv6_prefix: 64                # optional
/// ambiguous_cookies: refuse      # optional: or accept
/// jwt: { jwks_file: /etc/ratekeeper/jwks.json, audience: api }     # optional: for `claim:NAME`
/// country: { header: cf-ipcountry, database: country.mmdb }        # optional: for `country`
/// api_keys: { from: 'header:x-api-key', keys: [ { name: acme, sha256: '9f86…' } ] }   # optional: for `client`; all need one
/// ```
#[derive(Clone, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct IdentityConfig {
    from: Option<Vec<RawNamed>>,
    default: Option<Box<str>>,
    known: Option<Vec<Box<str>>>,
    ipv6_prefix: Option<u8>,
    ambiguous_cookies: Option<AmbiguousCookies>,
    jwt: Option<JwtConfig>,
    country: Option<CountryConfig>,
    api_keys: Option<ApiKeysConfig>,
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

impl Identity {
    /// Creates the identity that `config` describes. Reads the files that it names.
    ///
    /// # Errors
    /// The first error in the settings or in a file.
    pub fn open(config: &IdentityConfig) -> Result<Self, IdentityError> {
        let sources = match &config.from {
            None if config.api_keys.is_some() => vec![Named::from(ValueSource::Client)],
            None => Self::default().sources,
            Some(list) if list.is_empty() || list.len() > SOURCES_MAX => {
                return Err(IdentityError::new(
                    "from",
                    IdentityFault::Sources(SOURCES_MAX),
                ));
            }
            Some(list) => {
                let named = list.iter().enumerate();
                let named = named.map(|(at, raw)| {
                    raw.named()
                        .map_err(|fault| IdentityError::new(format!("from[{at}]"), fault))
                });
                let named = named.collect::<Result<Vec<_>, _>>()?;
                keep_apart(&named, list)?;
                named
            }
        };
        let ipv6_prefix = config.ipv6_prefix.unwrap_or(IPV6_PREFIX);
        if !(1..=128).contains(&ipv6_prefix) {
            let fault = IdentityFault::Prefix(ipv6_prefix);
            return Err(IdentityError::new("ipv6_prefix", fault));
        }
        let default: Box<str> = config.default.clone().unwrap_or_else(|| ANONYMOUS.into());
        if default.is_empty() {
            return Err(IdentityError::new("default", IdentityFault::EmptyDefault));
        }
        for named in &sources {
            let (is_missing, setting) = match &named.source {
                ValueSource::Claim(_) => (config.jwt.is_none(), "jwt"),
                ValueSource::Country => (config.country.is_none(), "country"),
                ValueSource::Client => (config.api_keys.is_none(), "api_keys"),
                _ => continue,
            };
            if is_missing {
                let part = named.source.clone();
                let fault = IdentityFault::Needs { part, setting };
                return Err(IdentityError::new("from", fault));
            }
        }
        let known = config.known.as_ref();
        let tokens = config.jwt.as_ref().map(Tokens::open).transpose()?;
        let countries = config.country.as_ref().map(Countries::open).transpose()?;
        let api_keys = config.api_keys.as_ref().map(ApiKeys::new).transpose()?;
        Ok(Self {
            sources,
            default,
            known: known.map(|names| names.iter().cloned().collect()),
            ipv6_prefix,
            ambiguous_cookies: config.ambiguous_cookies.unwrap_or_default(),
            tokens: tokens.map(Into::into),
            countries: countries.map(Into::into),
            api_keys: api_keys.map(Into::into),
        })
    }
}

/// Refuses names of different kinds under one key, unless the settings name that key explicitly.
fn keep_apart(named: &[Named], list: &[RawNamed]) -> Result<(), IdentityError> {
    for (at, (own, raw)) in named.iter().zip(list).enumerate() {
        let refused = |fault| Err(IdentityError::new(format!("from[{at}]"), fault));
        if *own.key == *ANONYMOUS_KEY {
            return refused(IdentityFault::NobodyKey {
                part: own.source.clone(),
                key: ANONYMOUS_KEY,
            });
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
            return refused(IdentityFault::SharedKey {
                part: own.source.clone(),
                other: other.source.clone(),
                key: own.key.clone(),
            });
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

impl RawNamed {
    fn named(&self) -> Result<Named, IdentityFault> {
        let (from, key) = match self {
            Self::Source(from) => (from, None),
            Self::Keyed(keyed) if keyed.key.is_empty() => return Err(IdentityFault::EmptyKey),
            Self::Keyed(keyed) => (&keyed.from, Some(keyed.key.clone())),
        };
        let source: ValueSource = from.parse()?;
        if source == ValueSource::Identity {
            return Err(IdentityFault::FromIdentity);
        }
        let named = Named::from(source);
        Ok(Named {
            key: key.unwrap_or(named.key),
            ..named
        })
    }
}
