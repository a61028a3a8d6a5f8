//! The stores of a service, connected and joined. Their settings are read in `settings/store.rs`.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, bail};
use ratekeeper_store::MemoryStore;
use ratekeeper_store_redis::RedisStore;
use ratekeeper_stores::{Backend, SharedStore, Stores};
use tokio::runtime::Handle;
use tokio::time::timeout;
use tracing::{info, warn};

use crate::settings::RedisSettings;

/// The time a service waits at its start for Redis to say what it is. After it, the service starts all the same unless
/// stores are required. Longer than a new Redis waits for the hash key of nodes that were there before.
const GREETING: Duration = Duration::from_secs(4);

/// Joins the stores: counters are in `default`, except for those that rules put into one of `named`. To be called
/// from the runtime that does the stores' maintenance tasks. `own` has the counters of rules that count on each node by itself.
pub(crate) fn joined(
    default: Backend,
    named: impl IntoIterator<Item = (Box<str>, Arc<dyn SharedStore>)>,
    own: Option<MemoryStore>,
) -> Stores {
    let home = Handle::current();
    let named = named.into_iter();
    let named = named.map(|(name, store)| (name, Backend::Shared(store)));
    let stores = Stores::new(default, named.collect(), move |rest| drop(home.spawn(rest)));
    match own {
        Some(own) => stores.with_own(own),
        None => stores,
    }
}

/// Connects to all Redis servers of a service; the stores of those that cannot be reached go on trying.
///
/// # Errors
/// They are required, and one of them cannot be reached or does not let us in.
pub(crate) async fn connect(
    settings: &[&RedisSettings],
    is_required: bool,
) -> Result<Vec<RedisStore>> {
    let endpoints = settings
        .iter()
        .map(|it| (it.endpoint.clone(), it.config.clone()));
    let stores = RedisStore::several(endpoints.collect(), &Handle::current());
    // Late is as good as not at all: the stores go on trying.
    let all_greeted = async {
        for store in &stores {
            store.greeted().await;
        }
    };
    let _ = timeout(GREETING, all_greeted).await;
    for (store, settings) in stores.iter().zip(settings) {
        tell(store, settings, is_required)?;
    }
    Ok(stores)
}

/// Says whether `store` can be asked.
///
/// # Errors
/// It cannot, and is required.
fn tell(store: &RedisStore, settings: &RedisSettings, is_required: bool) -> Result<()> {
    let status = store.server_status();
    let shown = &settings.shown;
    let why = match (status.error, &status.server) {
        (Some(why), _) => Some(file_at_fault(settings).unwrap_or(why)),
        (None, None) => Some(format!("no answer within {GREETING:?}")),
        (None, Some(server)) => {
            info!(server, "counters are in Redis ({shown})");
            None
        }
    };
    match why {
        Some(why) if is_required => {
            bail!("{shown}: {why}; not serving without the store, because of --require-store")
        }
        Some(why) => {
            warn!("{shown}: {why}; failure modes answer until the store is available");
        }
        None => {}
    }
    Ok(())
}

/// The error in a TLS file needed to connect, after the setting that names it.
fn file_at_fault(settings: &RedisSettings) -> Option<String> {
    let error = settings.endpoint.check_tls().err()?;
    Some(settings.files.blame(&error))
}
