//! Finds the country of a request.

#[cfg(any(test, not(feature = "geoip")))]
#[cfg_attr(feature = "geoip", expect(dead_code, reason = "a test alone opens it"))]
mod absent;
#[cfg(feature = "geoip")]
mod database;

use std::borrow::Cow;
use std::net::IpAddr;
use std::path::PathBuf;

use http::{HeaderMap, HeaderName};
use serde::Deserialize;

#[cfg(not(feature = "geoip"))]
use absent::Database;
#[cfg(feature = "geoip")]
use database::Database;

use super::{IdentityError, IdentityFault};

/// The sources of the country, in settings.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct CountryConfig {
    header: Option<String>,
    database: Option<PathBuf>,
}

/// A header that the edge sets, and an address database for requests without it.
#[derive(Debug)]
pub(crate) struct Countries {
    header: Option<HeaderName>,
    database: Option<Database>,
}

impl Countries {
    pub(super) fn open(config: &CountryConfig) -> Result<Self, IdentityError> {
        if config.header.is_none() && config.database.is_none() {
            let fault = IdentityFault::NoCountrySource;
            return Err(IdentityError::new("country", fault));
        }
        let header = config.header.as_ref().map(|name| {
            let refused = |_| {
                let fault = IdentityFault::HeaderName(name.as_str().into());
                IdentityError::new("country.header", fault)
            };
            name.parse().map_err(refused)
        });
        let database = config.database.as_ref().map(|path| {
            Database::open(path).map_err(|fault| IdentityError::new("country.database", fault))
        });
        Ok(Self {
            header: header.transpose()?,
            database: database.transpose()?,
        })
    }

    pub(super) const fn header(&self) -> Option<&HeaderName> {
        self.header.as_ref()
    }

    /// Reloads the database if it has changed and is valid.
    pub(super) fn refresh(&self) -> Result<bool, IdentityFault> {
        match &self.database {
            Some(database) => database.refresh(),
            None => Ok(false),
        }
    }

    /// The ISO 3166-1 code from the header, else from the database for the address. `headers` come
    /// from a trusted proxy; no other header is trusted.
    pub(crate) fn of(
        &self,
        client: Option<IpAddr>,
        headers: Option<&HeaderMap>,
    ) -> Option<Cow<'static, str>> {
        let said = self.header.as_ref().and_then(|name| headers?.get(name));
        let code = match said
            .and_then(|said| said.to_str().ok())
            .filter(|said| is_code(said))
        {
            Some(said) => said.to_ascii_uppercase(),
            None => self.database.as_ref()?.country(client?)?,
        };
        Some(Cow::Owned(code))
    }
}

fn is_code(text: &str) -> bool {
    text.len() == 2 && text.bytes().all(|byte| byte.is_ascii_alphanumeric())
}

#[cfg(all(test, feature = "geoip"))]
mod tests;
