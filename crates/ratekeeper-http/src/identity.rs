//! Identifies callers.

mod api_keys;
mod config;
mod countries;
mod error;
#[cfg(any(feature = "jwt", feature = "geoip"))]
mod file;
mod key_feed;
mod tokens;

use std::borrow::Cow;
use std::collections::HashSet;
use std::net::IpAddr;
use std::sync::Arc;

use ratekeeper_core::Timestamp;
use ratekeeper_rules::secret::is_secret_by_default;
use ratekeeper_rules::{PathFolding, PathForm};

use crate::credentials::AmbiguousCookies;
use crate::source::ValueSource;
use crate::{IPV6_PREFIX, Malformed, Original, Unauthenticated};
use api_keys::ApiKeys;
use countries::Countries;
use tokens::{OnInvalid, Tokens};

pub use api_keys::{ApiKeyError, ApiKeyFault};
pub use config::IdentityConfig;
pub use error::{IdentityError, IdentityFault, KeysFault};
pub use key_feed::KeyFeed;
pub(crate) use tokens::{Claims, claim};
pub use tokens::{KeysPlace, TokenError};

/// The entry key of an unidentified caller.
const ANONYMOUS_KEY: &str = "identity";
/// The default name of an unidentified caller.
const ANONYMOUS: &str = "anonymous";

/// The parts of a request that identify its caller, in order: the first that is present counts.
///
/// By default the `x-api-key` header, else the client's address.
#[derive(Clone, Debug)]
pub struct Identity {
    sources: Vec<Named>,
    default: Box<str>,
    known: Option<HashSet<Box<str>>>,
    ipv6_prefix: u8,
    ambiguous_cookies: AmbiguousCookies,
    tokens: Option<Arc<Tokens>>,
    countries: Option<Arc<Countries>>,
    api_keys: Option<Arc<ApiKeys>>,
}

/// A part of a request that identifies a caller, with the kind of its name.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Named {
    source: ValueSource,
    /// The key of the entry with the name. Different kinds of names have different keys, so that no
    /// caller reaches another one's counter with a name of another kind, and API keys are known to
    /// be secret.
    key: Box<str>,
}

impl Named {
    /// Returns true if the name is a secret, by its source or its key.
    fn is_secret(&self) -> bool {
        self.source.is_secret() || is_secret_by_default(&self.key)
    }
}

/// The caller of a request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CallerName<'a> {
    /// The kind of name, as the key of an entry: `api_key`, `remote_address`, `org`.
    pub key: &'a str,
    /// The name.
    pub name: Cow<'a, str>,
    /// True if the name is a secret, to be shown only as its
    /// [`fingerprint`](ratekeeper_rules::secret::fingerprint).
    pub is_secret: bool,
}

impl Default for Identity {
    fn default() -> Self {
        let api_key = ValueSource::Header(http::HeaderName::from_static("x-api-key"));
        Self {
            sources: [api_key, ValueSource::RemoteAddress]
                .map(Named::from)
                .into(),
            default: ANONYMOUS.into(),
            known: None,
            ipv6_prefix: IPV6_PREFIX,
            ambiguous_cookies: AmbiguousCookies::default(),
            tokens: None,
            countries: None,
            api_keys: None,
        }
    }
}

impl Identity {
    /// The caller of a request whose parts are told by `value`, which is given the prefix of IPv6 addresses too.
    pub(crate) fn caller<'a>(
        &'a self,
        folding: PathFolding,
        value: impl Fn(&ValueSource, u8) -> Result<Option<Cow<'a, str>>, Malformed>,
    ) -> Result<CallerName<'a>, Malformed> {
        for named in &self.sources {
            let Some(name) = value(&named.source, self.ipv6_prefix)? else {
                continue;
            };
            if named.source.is_said() && !self.knows(&name) {
                return Ok(self.anonymous());
            }
            return Ok(CallerName {
                key: &named.key,
                name: named.source.counted(name, folding),
                is_secret: named.is_secret(),
            });
        }
        Ok(self.anonymous())
    }

    /// The tenant in a path.
    pub(crate) fn tenant<'a>(
        &'a self,
        key: &'static str,
        segment: &'a str,
        folding: PathFolding,
    ) -> Result<CallerName<'a>, Malformed> {
        let name = crate::source::name_in_path(segment)?;
        Ok(if self.knows(name) {
            let name = folding.fold(PathForm::Segment, name);
            CallerName {
                key,
                name,
                is_secret: false,
            }
        } else {
            self.anonymous()
        })
    }

    /// Reloads the files of its settings that have changed; returns true if any did. A file that is
    /// invalid leaves the previous contents in force. Cheap enough for every second: only the
    /// files' metadata is read unless they changed.
    ///
    /// # Errors
    /// The error in a changed file; returned once for each change.
    pub fn refresh(&self) -> Result<bool, IdentityError> {
        let tokens = self.tokens.as_ref().map(|tokens| {
            let refreshed = tokens.refresh();
            refreshed.map_err(|fault| IdentityError::new("jwt", fault))
        });
        let countries = self.countries.as_ref().map(|countries| {
            let refreshed = countries.refresh();
            refreshed.map_err(|fault| IdentityError::new("country.database", fault))
        });
        Ok(tokens.transpose()?.unwrap_or(false) | countries.transpose()?.unwrap_or(false))
    }

    /// The parts of a request that are tried, in order.
    pub(crate) fn sources(&self) -> impl Iterator<Item = &ValueSource> {
        self.sources.iter().map(|named| &named.source)
    }

    /// The keys of the entries with the caller's name, each with the part that it is.
    pub(crate) fn named(&self) -> impl Iterator<Item = (&str, &ValueSource)> {
        let named = self.sources.iter();
        named.map(|named| (&*named.key, &named.source))
    }

    /// The keys of entries whose names are secrets.
    pub(crate) fn secret_keys(&self) -> impl Iterator<Item = &str> {
        let secret = self.sources.iter().filter(|named| named.is_secret());
        secret.map(|named| &*named.key)
    }

    /// The header with the country, if one is configured.
    pub(crate) fn country_header(&self) -> Option<&http::HeaderName> {
        self.countries.as_ref()?.header()
    }

    pub(crate) const fn ambiguous_cookies(&self) -> AmbiguousCookies {
        self.ambiguous_cookies
    }

    pub(crate) const fn checks_tokens(&self) -> bool {
        self.tokens.is_some()
    }

    /// The claims of `token`, sent by `sender` at `at` or now; None if it is not accepted and the settings
    /// tolerate that.
    pub(crate) fn claims(
        &self,
        token: &str,
        sender: Option<IpAddr>,
        at: Option<Timestamp>,
    ) -> Result<Option<Arc<Claims>>, Unauthenticated> {
        let Some(tokens) = &self.tokens else {
            return Ok(None);
        };
        match (tokens.claims(token, sender, at), tokens.on_invalid()) {
            (Ok(claims), _) => Ok(Some(claims)),
            (Err(why), OnInvalid::Refuse) => Err(Unauthenticated::Token(why)),
            (Err(_), OnInvalid::Anonymous) => Ok(None),
        }
    }

    /// The keys that requests need, if they need one.
    pub(crate) fn api_keys(&self) -> Option<&ApiKeys> {
        self.api_keys.as_deref()
    }

    pub(crate) fn country(&self, request: &Original<'_>) -> Option<Cow<'static, str>> {
        let headers = request.is_from_trusted.then_some(request.headers);
        self.countries.as_ref()?.of(request.client, headers)
    }

    fn knows(&self, name: &str) -> bool {
        self.known.as_ref().is_none_or(|known| known.contains(name))
    }

    fn anonymous(&self) -> CallerName<'_> {
        CallerName {
            key: ANONYMOUS_KEY,
            name: Cow::Borrowed(&self.default),
            is_secret: false,
        }
    }
}

impl From<ValueSource> for Named {
    fn from(source: ValueSource) -> Self {
        let key = match &source {
            ValueSource::Header(_)
            | ValueSource::Query(_)
            | ValueSource::Cookie(_)
            | ValueSource::Bearer => "api_key".to_owned(),
            ValueSource::PathVariable(pattern) => {
                pattern.variables().next().unwrap_or_default().to_owned()
            }
            ValueSource::PathSegment(_) => "path_segment".to_owned(),
            ValueSource::Body(place) => {
                let last = place.tokens().last();
                last.map_or_else(String::new, |token| token.key.to_string())
            }
            ValueSource::Claim(name) => name.trim_start_matches('/').to_owned(),
            other => other.to_string(),
        };
        Self {
            source,
            key: key.into(),
        }
    }
}

#[cfg(test)]
mod tests;
