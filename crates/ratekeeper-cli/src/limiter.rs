//! Limiters made from the settings.

use crate::settings::Settings;
use crate::state::State;
use crate::store::{connect, joined};
use anyhow::{Context, Result};
use ratekeeper_limiter::{Fallback, FallbackConfig, Limiter, LimiterOptions, Modes, RuleSlots};
use ratekeeper_rules::RuleSet;
use ratekeeper_store::Store;
use ratekeeper_store::memory::{MemoryConfig, MemoryStore};
use ratekeeper_store_redis::RedisStore;
use ratekeeper_stores::{Backend, Stores};
use tracing::warn;

/// A limiter with fresh counters in memory.
///
/// # Errors
/// The system does not have the memory.
pub(crate) fn fresh<S: Store + From<MemoryStore>>(
    rules: RuleSet,
    settings: &Settings,
) -> Result<Limiter<S>> {
    Ok(Limiter::new(
        rules,
        store(settings)?.into(),
        options(settings),
    ))
}

/// A limiter with fresh counters in memory, where limits are in force: neither the shadow mode of a service counts nor its
/// quota mode.
///
/// # Errors
/// The system does not have the memory.
pub(crate) fn enforcing<S: Store + From<MemoryStore>>(
    rules: RuleSet,
    settings: &Settings,
) -> Result<Limiter<S>> {
    let mut options = options(settings);
    options.modes = Modes::default();
    Ok(Limiter::new(rules, store(settings)?.into(), options))
}

/// The limiter of a service.
pub(crate) struct Served {
    pub(crate) limiter: Limiter<Stores>,
    /// The store where nodes lay out what they tell each other, if they share one.
    pub(crate) boards: Option<RedisStore>,
}

/// A limiter with counters in the stores that the settings name. Those in memory go on from `state`,
/// if they are kept. While it cannot reach a store, it decides by itself.
///
/// # Errors
/// The system does not have the memory, or the file cannot be read; or stores are required, and
/// one of them cannot be asked.
pub(crate) async fn served(
    rules: RuleSet,
    settings: &Settings,
    state: Option<&State>,
) -> Result<Served> {
    let mut options = options(settings);
    let mut kept_slots = None;
    let shared = settings.redis.iter();
    let shared = shared.chain(settings.stores.iter().map(|it| &it.redis));
    let shared: Vec<_> = shared.collect();
    let shared = connect(&shared, *settings.values.require_store).await?;
    let boards = shared.first().cloned();
    let mut shared = shared.iter().map(RedisStore::shared);
    let default = match settings.redis.as_ref().and_then(|_| shared.next()) {
        Some(redis) => Backend::Shared(redis),
        None => {
            let store = store(settings)?;
            if let Some(state) = state
                && let Some(kept) = state.load(&store)?
            {
                options.hash_key = Some(kept.hash_key);
                options.clock_from = kept.saved_at;
                kept_slots = Some(kept.slots);
            }
            Backend::Memory(store)
        }
    };
    if settings.shares_counters() && settings.state.is_some() {
        warn!(
            "--state and --data-dir save no counters: they are in Redis, and those with `consistency: local` in memory, \
             where they start afresh"
        );
    }
    let names = settings.stores.iter().map(|it| it.name.clone());
    // Rules with `consistency: local` count in memory, whatever store the others share.
    let own = match &default {
        Backend::Shared(_) => Some(self::store(settings)?),
        Backend::Memory(_) => None,
    };
    let store = joined(default, names.zip(shared), own);
    let limiter = counting_in(store, rules, options, settings, kept_slots)?;
    if let Some(shared) = limiter.store().hash_key() {
        // Kept counters may have been named by another one.
        limiter.adopt_hash_key(shared);
    }
    Ok(Served { limiter, boards })
}

/// A limiter that counts in `stores`, where rules have the slots of kept counters. If one store is shared, of whatever kind, it can
/// be away, and a fallback decides.
///
/// # Errors
/// The system does not have the memory.
fn counting_in(
    stores: Stores,
    rules: RuleSet,
    options: LimiterOptions,
    settings: &Settings,
    kept: Option<RuleSlots>,
) -> Result<Limiter<Stores>> {
    let is_one_shared = stores.is_one_shared();
    let mut limiter = Limiter::new(rules, stores, options);
    if let Some(slots) = kept {
        limiter = limiter.with_slots(slots);
    }
    if !is_one_shared {
        return Ok(limiter);
    }
    let fallback = Fallback::new(FallbackConfig {
        memory: memory(settings),
        local_factor: *settings.values.local_factor,
    });
    let fallback = fallback.context("--memory-limit cannot be allocated")?;
    Ok(limiter.with_fallback(fallback))
}

fn store(settings: &Settings) -> Result<MemoryStore> {
    MemoryStore::new(memory(settings)).context("--memory-limit cannot be allocated")
}

/// The size of the store in memory.
fn memory(settings: &Settings) -> MemoryConfig {
    // No machine has more memory than usize can count; the store then says so.
    let memory_limit = usize::try_from(*settings.values.memory_limit).unwrap_or(usize::MAX);
    MemoryConfig {
        memory_limit,
        max_share_percent: *settings.values.max_share,
    }
}

/// The limiter's options for rules.
fn options(settings: &Settings) -> LimiterOptions {
    let mut options = LimiterOptions::default();
    options.profile = *settings.values.profile;
    options.modes = settings.values.modes();
    // It names counters in Redis alone: those in memory are each node's own, which nobody else may settle.
    options.fingerprint_key = *settings.values.store_hash_key;
    options
}

#[cfg(test)]
mod tests;
