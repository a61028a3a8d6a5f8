//! A limiter as the settings want it.

use crate::settings::Settings;
use crate::state;
use crate::store::NodeStore;
use anyhow::{Context, Result};
use ratekeeper_limiter::{Fallback, FallbackConfig, Limiter, LimiterOptions};
use ratekeeper_rules::RuleSet;
use ratekeeper_server::ServedStore as _;
use ratekeeper_store::memory::{MemoryConfig, MemoryStore};
use tracing::warn;

/// A limiter with fresh counters in memory.
///
/// # Errors
/// The system does not have the memory.
pub(crate) fn fresh(rules: RuleSet, settings: &Settings) -> Result<Limiter<MemoryStore>> {
    Ok(Limiter::new(rules, store(settings)?, options(settings)))
}

/// A limiter that goes on with the counters kept in the settings' state file, if there is one.
///
/// # Errors
/// The system does not have the memory, or the file cannot be read.
fn kept(rules: RuleSet, settings: &Settings) -> Result<Limiter<NodeStore>> {
    let store = store(settings)?;
    let mut options = options(settings);
    if let Some(path) = &settings.counters.state {
        options.seed = state::load(&store, path)?;
    }
    let store = NodeStore::Memory(Box::new(store));
    Ok(Limiter::new(rules, store, options))
}

/// A limiter with the counters where the settings say, which goes on by itself while it cannot
/// ask there.
///
/// # Errors
/// As for [`kept`]; or Redis is required, and cannot be asked.
pub(crate) async fn served(rules: RuleSet, settings: &Settings) -> Result<Limiter<NodeStore>> {
    let Some(redis) = &settings.counters.redis else {
        return kept(rules, settings);
    };
    if settings.counters.state.is_some() {
        warn!(
            "counters in Redis need no state file: nothing is loaded or saved (--state, --data-dir)"
        );
    }
    let fallback = Fallback::new(FallbackConfig {
        memory: memory(settings),
        local_factor: redis.local_factor,
    });
    let fallback = fallback.context("--memory-limit cannot be had")?;
    let store = NodeStore::connect(redis).await?;
    let mut options = options(settings);
    options.seed = store.seed();
    Ok(Limiter::new(rules, store, options).with_fallback(fallback))
}

fn store(settings: &Settings) -> Result<MemoryStore> {
    MemoryStore::new(memory(settings)).context("--memory-limit cannot be had")
}

/// How large the store is.
fn memory(settings: &Settings) -> MemoryConfig {
    // Above usize there is nothing that could be had; the store then says so.
    let memory_limit = usize::try_from(settings.counters.memory_limit).unwrap_or(usize::MAX);
    MemoryConfig {
        memory_limit,
        max_share_percent: settings.counters.max_share_percent,
    }
}

/// How rules are taken.
fn options(settings: &Settings) -> LimiterOptions {
    let mut options = LimiterOptions::default();
    options.profile = settings.rules.profile;
    options.modes = settings.modes;
    options
}
