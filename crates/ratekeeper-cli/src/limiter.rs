//! A limiter as the settings want it.

use crate::settings::Settings;
use crate::state;
use anyhow::{Context, Result};
use ratekeeper_limiter::{Limiter, LimiterOptions};
use ratekeeper_rules::RuleSet;
use ratekeeper_store::memory::{MemoryConfig, MemoryStore};

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
pub(crate) fn kept(rules: RuleSet, settings: &Settings) -> Result<Limiter<MemoryStore>> {
    let store = store(settings)?;
    let mut options = options(settings);
    if let Some(path) = &settings.counters.state {
        options.seed = state::load(&store, path)?;
    }
    Ok(Limiter::new(rules, store, options))
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
