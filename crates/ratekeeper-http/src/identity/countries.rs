//! Which country a request comes from.

use std::borrow::Cow;
use std::net::IpAddr;
use std::path::PathBuf;

use arc_swap::ArcSwap;
use http::{HeaderMap, HeaderName};
use maxminddb::{PathElement, Reader};
use serde::Deserialize;

use super::IdentityError;
use super::file::{Followed, read};

/// Where the country stands, as settings say it.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct CountryConfig {
    header: Option<String>,
    database: Option<PathBuf>,
}

/// A header that the edge sets, and a database of addresses for requests without it.
#[derive(Debug)]
pub(crate) struct Countries {
    header: Option<HeaderName>,
    database: Option<Database>,
}

#[derive(Debug)]
struct Database {
    reader: ArcSwap<Reader<Vec<u8>>>,
    file: Followed,
}

impl Countries {
    pub(super) fn open(config: &CountryConfig) -> Result<Self, IdentityError> {
        if config.header.is_none() && config.database.is_none() {
            let message = "expected `header`, `database` or both";
            return Err(IdentityError::new("country", message));
        }
        let header = config.header.as_ref().map(|name| {
            let refused = |_| {
                let message = format!("`{name}` cannot be the name of a header");
                IdentityError::new("country.header", message)
            };
            name.parse().map_err(refused)
        });
        let database = config.database.as_ref().map(|path| {
            let refused = |message| IdentityError::new("country.database", message);
            let (content, file) = read(path).map_err(refused)?;
            let reader = understood(content, &file).map_err(refused)?;
            Ok(Database {
                reader: ArcSwap::from_pointee(reader),
                file,
            })
        });
        Ok(Self {
            header: header.transpose()?,
            database: database.transpose()?,
        })
    }

    pub(super) const fn header(&self) -> Option<&HeaderName> {
        self.header.as_ref()
    }

    /// Takes the database's new content in, if it has changed and is one.
    pub(super) fn refresh(&self) -> Result<bool, String> {
        let Some(database) = &self.database else {
            return Ok(false);
        };
        let Some(content) = database.file.changed()? else {
            return Ok(false);
        };
        let reader = understood(content, &database.file)?;
        database.reader.store(reader.into());
        Ok(true)
    }

    /// The two letters of ISO 3166-1 as the header has them, else as the database has them for the address. `headers` are
    /// those of a trusted proxy; what others say of their country is not believed.
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

impl Database {
    fn country(&self, client: IpAddr) -> Option<String> {
        let reader = self.reader.load();
        // What it does not know, or cannot tell, is no country.
        let found = reader.lookup(client).ok()?;
        let path = [PathElement::Key("country"), PathElement::Key("iso_code")];
        let code: String = found.decode_path(&path).ok()??;
        is_code(&code).then(|| code.to_ascii_uppercase())
    }
}

fn is_code(text: &str) -> bool {
    text.len() == 2 && text.bytes().all(|byte| byte.is_ascii_alphanumeric())
}

fn understood(content: Vec<u8>, file: &Followed) -> Result<Reader<Vec<u8>>, String> {
    Reader::from_source(content)
        .map_err(|error| format!("{} is no MaxMind DB: {error}", file.path.display()))
}

#[cfg(test)]
mod tests;
