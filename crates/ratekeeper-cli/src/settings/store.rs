//! The settings of the counters: in memory, in the default Redis, and how any Redis is asked.

use super::Settings;
use super::checks::Checks;
use super::table::Values;
use super::tls::TlsSettings;
use super::value_error::ValueError;
use super::values::{self, hash_key, maybe, size, within};
use ratekeeper_store::HashKey;
use ratekeeper_store_redis::{Endpoint, RedisConfig};
use ratekeeper_tls::TlsFiles;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The error message about TLS files for a store without TLS.
pub(super) const NOT_ENCRYPTED: &str =
    "it means nothing for a store that is not encrypted; write rediss://";

/// The least that counters can be given, in bytes.
const MEMORY_LIMIT_MIN: u64 = 1 << 20;

/// A Redis, and how to connect to it.
#[derive(Debug)]
pub(crate) struct RedisSettings {
    pub(crate) endpoint: Endpoint,
    /// The URL without its password.
    pub(crate) shown: String,
    pub(crate) config: RedisConfig,
    /// The settings that name its files.
    pub(crate) files: TlsSettings,
}

impl Settings {
    /// Returns true if nodes share the counters of the default store.
    pub(crate) const fn shares_counters(&self) -> bool {
        self.redis.is_some()
    }

    /// The file that counters in memory are saved in, if they are in memory and are saved.
    pub(crate) fn kept(&self) -> Option<&Path> {
        self.state.as_deref().filter(|_| !self.shares_counters())
    }
}

impl Values {
    /// The file that counters are saved in, if they are.
    pub(super) fn state_file(&self) -> Option<PathBuf> {
        let in_data = || Some(self.data_dir.as_ref()?.join("counters.state"));
        self.state.clone().or_else(in_data)
    }

    /// The configuration of every Redis without one of its own.
    pub(super) fn redis_config(&self) -> RedisConfig {
        let mut config = RedisConfig::default();
        config.deadline = *self.store_deadline;
        config.deny_cache_max = *self.deny_cache_max;
        config.merges = *self.store_merge;
        config.groups_max = *self.store_batch;
        config.hash_key.clone_from(&self.store_hash_key);
        config
    }
}

impl Checks<'_> {
    /// The Redis that counters are in; `None` for memory.
    pub(super) fn redis(&mut self) -> Option<RedisSettings> {
        let shown = values::masked(&self.values.store.said.text);
        Some(RedisSettings {
            endpoint: self.endpoint()?,
            shown: format!("--store {shown}"),
            config: self.values.redis_config(),
            files: TlsSettings::of("store_"),
        })
    }

    /// The endpoint with the files that are named for it. Files for what is not encrypted are a
    /// mistake: whoever names an authority expects to be safe.
    fn endpoint(&mut self) -> Option<Endpoint> {
        let values = self.values;
        let files = self.client_tls(&values.store_ca, &values.store_cert, &values.store_key);
        let endpoint = values.store.clone();
        if files == TlsFiles::default() {
            return endpoint;
        }
        let first = match files.authorities {
            Some(_) => &values.store_ca,
            None => &values.store_cert,
        };
        let encrypted = endpoint?.with_tls(files);
        if encrypted.is_none() {
            self.refuse(&first.said, format!("{NOT_ENCRYPTED} in `store`"));
        }
        encrypted
    }
}

/// Parses the store of the counters; `None` for memory.
pub(super) fn store(text: &str) -> Result<Option<Endpoint>, ValueError> {
    if text == "memory" {
        return Ok(None);
    }
    if !text.contains("://") {
        return Err(ValueError::Store(values::masked(text).into()));
    }
    redis(text).map(Some)
}

/// The Redis that `text` names.
pub(super) fn redis(text: &str) -> Result<Endpoint, ValueError> {
    Endpoint::parse(text).map_err(|error| ValueError::Endpoint {
        text: values::masked(text).into(),
        error,
    })
}

/// Long enough for a way there and back, and too short for a caller to notice.
pub(super) fn deadline(text: &str) -> Result<Duration, ValueError> {
    within(Duration::from_millis(1)..=Duration::from_secs(1))(text)
}

pub(super) fn local_factor(text: &str) -> Result<f64, ValueError> {
    let factor = text
        .parse()
        .ok()
        .filter(|factor| *factor > 0.0 && *factor <= 1.0);
    factor.ok_or_else(|| ValueError::LocalFactor(text.into()))
}

pub(super) fn memory_limit(text: &str) -> Result<u64, ValueError> {
    let size = size(text)?;
    if size < MEMORY_LIMIT_MIN {
        return Err(ValueError::TooLittleMemory(text.into()));
    }
    Ok(size)
}

/// Parses the key of the hashes that name counters.
pub(super) fn store_hash_key(text: &str) -> Result<Option<HashKey>, ValueError> {
    let key = maybe(hash_key)(text)?;
    Ok(key.map(HashKey::from_bytes))
}
