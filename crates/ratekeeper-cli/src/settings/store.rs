//! The settings of the counters: in memory, in the default Redis, and how any Redis is asked.

use super::meaning::{memory_limit, percent};
use super::tls::TlsSettings;
use super::typed::Typed;
use super::value_error::ValueError;
use super::values;
use ratekeeper_store::HashKey;
use ratekeeper_store_redis::{Endpoint, RedisConfig};
use ratekeeper_tls::TlsFiles;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The error message about TLS files for a store without TLS.
pub(super) const NOT_ENCRYPTED: &str =
    "it means nothing for a store that is not encrypted; write rediss://";

/// The stores of counters.
#[derive(Debug)]
pub(crate) struct Counters {
    /// In bytes, 1 MiB at least.
    pub(crate) memory_limit: u64,
    /// The most of it that one rule may hold, 1 to 100.
    pub(crate) max_share_percent: u8,
    /// The file they are saved in, if they are.
    pub(crate) state: Option<PathBuf>,
    /// The Redis they are in; `None` for memory.
    pub(crate) redis: Option<RedisSettings>,
    /// Further ones, for rules that name them; in the order of their names.
    pub(crate) stores: Vec<NamedStore>,
    /// The factor applied to limits while a store cannot be reached, above 0 and at most 1.
    pub(crate) local_factor: f64,
    /// True if the process refuses to start unless all stores can be reached.
    pub(crate) is_required: bool,
}

impl Counters {
    /// The file that counters in memory are saved in, if they are in memory and are saved.
    pub(crate) fn kept(&self) -> Option<&Path> {
        self.state.as_deref().filter(|_| self.redis.is_none())
    }
}

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

/// A store that rules may name.
#[derive(Debug)]
pub(crate) struct NamedStore {
    pub(crate) name: Box<str>,
    pub(crate) redis: RedisSettings,
}

impl Typed<'_> {
    pub(super) fn counters(&mut self) -> Counters {
        let defaults = self.redis_config();
        let redis = self.redis(&defaults);
        let stores = self.stores(&defaults);
        let data_dir = self.path("data_dir");
        Counters {
            local_factor: self.get("local_factor", local_factor),
            is_required: self.get("require_store", values::switch),
            memory_limit: self.get("memory_limit", memory_limit),
            max_share_percent: self.get("max_share", percent),
            state: self
                .path("state")
                .or_else(|| Some(data_dir?.join("counters.state"))),
            redis,
            stores,
        }
    }

    /// The configuration of every Redis without one of its own.
    fn redis_config(&mut self) -> RedisConfig {
        let mut config = RedisConfig::default();
        config.deadline = self.get("store_deadline", deadline);
        config.deny_cache_max = self.get("deny_cache_max", |text| {
            values::duration_within(text, Duration::ZERO..=Duration::from_secs(10))
        });
        config.merges = self.get("store_merge", values::switch);
        config.groups_max = self.get("store_batch", |text| values::number(text, 1..=1_024));
        config.hash_key = self.get("store_hash_key", |text| {
            values::maybe(text, values::hash_key).map(|key| key.map(HashKey::from_bytes))
        });
        config
    }

    fn redis(&mut self, config: &RedisConfig) -> Option<RedisSettings> {
        let endpoint = self.get("store", store);
        let endpoint = self.with_tls(endpoint);
        let shown = values::masked(&self.layers.said("store").text);
        Some(RedisSettings {
            endpoint: endpoint?,
            shown: format!("--store {shown}"),
            config: config.clone(),
            files: TlsSettings::of("store_"),
        })
    }

    /// The endpoint with the files that are named for it. Files for what is not encrypted are a
    /// mistake: whoever names an authority expects to be safe.
    fn with_tls(&mut self, endpoint: Option<Endpoint>) -> Option<Endpoint> {
        let files = self.client_tls("store_");
        if files == TlsFiles::default() {
            return endpoint;
        }
        let first = match files.authorities {
            Some(_) => "store_ca",
            None => "store_cert",
        };
        let encrypted = endpoint?.with_tls(files);
        if encrypted.is_none() {
            self.refuse(first, format!("{NOT_ENCRYPTED} in `store`"));
        }
        encrypted
    }
}

/// Parses the store of the counters; `None` for memory.
fn store(text: &str) -> Result<Option<Endpoint>, ValueError> {
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
    values::duration_within(text, Duration::from_millis(1)..=Duration::from_secs(1))
}

fn local_factor(text: &str) -> Result<f64, ValueError> {
    let factor = text
        .parse()
        .ok()
        .filter(|factor| *factor > 0.0 && *factor <= 1.0);
    factor.ok_or_else(|| ValueError::LocalFactor(text.into()))
}
