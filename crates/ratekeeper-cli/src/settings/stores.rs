//! `stores`: further stores, by name.

use super::layer::{Origin, RawValue};
use super::nested::NestedError;
use super::store::{self, NOT_ENCRYPTED, RedisSettings};
use super::tls::TlsSettings;
use super::value_error::ValueError;
use super::{nested, values};
use ratekeeper_rules::DEFAULT_STORE;
use ratekeeper_store_redis::{Endpoint, RedisConfig};
use ratekeeper_stores::NAMED_STORES_MAX;
use ratekeeper_tls::{TlsFiles, TlsIdentity};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::time::Duration;

/// The longest name, in bytes: it is part of metrics' labels.
const NAME_MAX: usize = 64;

/// A store as it is written.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    url: String,
    ca: Option<String>,
    cert: Option<String>,
    key: Option<String>,
    deadline: Option<String>,
}

/// A store as it is given: all that is not said is as for the default store.
#[derive(Clone, Debug)]
pub(crate) struct NamedEntry {
    name: Box<str>,
    endpoint: Endpoint,
    /// The URL without its password.
    url: String,
    deadline: Option<Duration>,
}

/// A store that rules may name.
#[derive(Debug)]
pub(crate) struct NamedStore {
    pub(crate) name: Box<str>,
    pub(crate) redis: RedisSettings,
}

impl NamedStore {
    pub(super) fn new(entry: &NamedEntry, defaults: &RedisConfig) -> Self {
        let NamedEntry {
            name,
            endpoint,
            url,
            deadline,
        } = entry.clone();
        let mut config = defaults.clone();
        config.deadline = deadline.unwrap_or(config.deadline);
        let redis = RedisSettings {
            endpoint,
            shown: format!("stores.{name} {url}"),
            config,
            files: TlsSettings::of(&format!("stores.{name}.")),
        };
        Self { name, redis }
    }
}

/// The fault of a mapping of stores, with the name of the store. It has no passwords.
#[derive(Debug, thiserror::Error)]
pub(super) enum StoresError {
    #[error(transparent)]
    Nested(#[from] NestedError),
    #[error("at most {NAMED_STORES_MAX} stores")]
    TooMany,
    #[error(
        "`{0}` is not a name for a store: write up to {NAME_MAX} of a-z, 0-9, - and _, and not `{DEFAULT_STORE}`"
    )]
    Name(Box<str>),
    #[error("{name}.{fault}")]
    Store { name: Box<str>, fault: StoreFault },
}

/// The fault of one store, with the name of the field.
#[derive(Debug, thiserror::Error)]
pub(super) enum StoreFault {
    #[error("url: {0}")]
    Url(ValueError),
    #[error("deadline: {0}")]
    Deadline(ValueError),
    #[error("{0}: it means nothing without `{1}`; set both")]
    Lacks(&'static str, &'static str),
    #[error("{0}: {NOT_ENCRYPTED} in `url`")]
    NotEncrypted(&'static str),
}

/// Parses stores by name. The files they name count from the file they are in.
pub(super) fn stores(said: &RawValue) -> Result<Vec<NamedEntry>, StoresError> {
    if said.text.is_empty() {
        return Ok(Vec::new());
    }
    let expected = "expected names, each with its `url`: ";
    let value = nested::parse(&said.text)?;
    let entries: BTreeMap<String, Entry> = nested::deserialize(value, expected)?;
    if entries.len() > NAMED_STORES_MAX {
        return Err(StoresError::TooMany);
    }
    let stores = entries.into_iter().map(|(name, entry)| {
        let name: Box<str> = name.into();
        if !is_name(&name) {
            return Err(StoresError::Name(name));
        }
        match named(name.clone(), &entry, &said.origin) {
            Ok(store) => Ok(store),
            Err(fault) => Err(StoresError::Store { name, fault }),
        }
    });
    stores.collect()
}

fn named(name: Box<str>, entry: &Entry, origin: &Origin) -> Result<NamedEntry, StoreFault> {
    let mut endpoint = store::redis(&entry.url).map_err(StoreFault::Url)?;
    let file = |text: &String| origin.path(text);
    let identity = match (&entry.cert, &entry.key) {
        (Some(certificate), Some(key)) => Some(TlsIdentity {
            certificate: file(certificate),
            key: file(key),
        }),
        (Some(_), None) => return Err(StoreFault::Lacks("cert", "key")),
        (None, Some(_)) => return Err(StoreFault::Lacks("key", "cert")),
        (None, None) => None,
    };
    let files = TlsFiles {
        authorities: entry.ca.as_ref().map(file),
        identity,
    };
    if files != TlsFiles::default() {
        let first = if entry.ca.is_some() { "ca" } else { "cert" };
        let encrypted = endpoint.with_tls(files);
        endpoint = encrypted.ok_or(StoreFault::NotEncrypted(first))?;
    }
    let deadline = entry.deadline.as_deref().map(store::deadline).transpose();
    Ok(NamedEntry {
        name,
        endpoint,
        url: values::masked(&entry.url),
        deadline: deadline.map_err(StoreFault::Deadline)?,
    })
}

fn is_name(text: &str) -> bool {
    let allowed = |byte: u8| {
        byte.is_ascii_lowercase() || byte.is_ascii_digit() || matches!(byte, b'-' | b'_')
    };
    (1..=NAME_MAX).contains(&text.len()) && text != DEFAULT_STORE && text.bytes().all(allowed)
}

#[cfg(test)]
mod tests {
    use super::super::table::row;
    use super::*;

    fn read(text: &str) -> Result<Vec<NamedStore>, StoresError> {
        let origin = Origin::File {
            path: "/etc/ratekeeper/ratekeeper.yaml".into(),
            line: 1,
            column: 1,
        };
        let said = RawValue {
            setting: &row::stores,
            text: text.to_owned(),
            origin,
        };
        let defaults = RedisConfig::default();
        let entries = stores(&said)?;
        Ok(entries
            .iter()
            .map(|entry| NamedStore::new(entry, &defaults))
            .collect())
    }

    #[test]
    fn stores_have_names_and_what_is_not_said_is_as_for_the_default_one() {
        let text = "{eu: {url: 'rediss://:geheim@eu/', ca: ca.pem, deadline: 50ms}, as: {url: 'redis://as/2'}}";
        let stores = read(text).expect("two stores");
        let names: Vec<_> = stores.iter().map(|store| &*store.name).collect();
        assert_eq!(names, ["as", "eu"]);
        let deadlines = stores.iter().map(|it| it.redis.config.deadline.as_millis());
        assert_eq!(deadlines.collect::<Vec<_>>(), [10, 50]);
        assert_eq!(stores[1].redis.shown, "stores.eu rediss://:****@eu/");
        let checked = stores[1].redis.endpoint.check_tls();
        let error = checked.expect_err("the file is not there");
        assert_eq!(error.path, Some("/etc/ratekeeper/ca.pem".into()));
        assert!(read("").expect("none").is_empty());
    }

    #[test]
    fn what_is_wrong_is_said_with_its_place_and_without_passwords() {
        for (text, part) in [
            ("[a]", "expected names"),
            (
                "{EU: {url: 'redis://h/'}}",
                "`EU` is not a name for a store",
            ),
            ("{default: {url: 'redis://h/'}}", "not `default`"),
            (
                "{eu: {ulr: 'redis://:geheim@h/'}}",
                "eu.ulr: unknown field `ulr`",
            ),
            ("{eu: {url: 'redis://:geheim@h/x'}}", "eu.url: "),
            ("{eu: {url: memory}}", "eu.url: "),
            (
                "{eu: {url: 'redis://h/', ca: a.pem}}",
                "eu.ca: it means nothing for a store",
            ),
            (
                "{eu: {url: 'rediss://h/', cert: a.pem}}",
                "eu.cert: it means nothing without `key`",
            ),
            (
                "{eu: {url: 'redis://h/', deadline: 1h}}",
                "eu.deadline: `1h` is not",
            ),
        ] {
            let said = read(text).expect_err(text).to_string();
            assert!(
                said.contains(part) && !said.contains("geheim"),
                "{text}: {said}"
            );
        }
    }
}
