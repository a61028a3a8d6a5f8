//! The keys of tokens that are fetched from a URL.

use crate::background::Background;
use crate::settings::Settings;
use anyhow::{Context as _, Result};
use ratekeeper_server::{Families, MaintenanceTask, Monitored, Server};
use ratekeeper_sources::{KeysSource, SourceStatus};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Mutex;
use tokio::time::timeout;

/// The longest that a start waits for the keys.
const PATIENCE: Duration = Duration::from_secs(10);

/// A source of keys that has been asked once.
pub(super) struct TokenKeys {
    source: KeysSource,
    pause: Duration,
}

impl TokenKeys {
    /// Fetches the keys for the first time, if there are any to fetch. A server that does not answer does not stop the start.
    ///
    /// # Errors
    /// The URL is none.
    pub(super) async fn first(settings: &Settings) -> Result<Option<Self>> {
        let Some(feed) = settings.auth.describer.identity.key_feed() else {
            return Ok(None);
        };
        let mut source = KeysSource::new(feed).context("identity.jwt.jwks_url")?;
        let fetched = timeout(PATIENCE, source.fetch()).await;
        let pause = fetched.unwrap_or(Duration::ZERO);
        Ok(Some(Self { source, pause }))
    }

    /// Goes on to fetch, and reports to `server`, until the result is dropped.
    pub(super) fn follow(self, server: &Server) -> Background {
        let task = Arc::new(MaintenanceTask::new("token keys"));
        server.monitor(Arc::new(KeysReport {
            status: self.source.source_status(),
            task: Arc::clone(&task),
        }));
        self.keep_fetching(task)
    }

    fn keep_fetching(self, task: Arc<MaintenanceTask>) -> Background {
        // Only one task at a time holds the lock.
        let source = Arc::new(Mutex::new(self.source));
        let mut pause = self.pause;
        Background::start(task, move || {
            let source = Arc::clone(&source);
            // After a panic, at once.
            let pause = std::mem::take(&mut pause);
            async move { source.lock().await.run(pause).await }
        })
    }
}

/// The state of the source, for operators.
#[derive(Debug)]
struct KeysReport {
    status: SourceStatus,
    task: Arc<MaintenanceTask>,
}

impl Monitored for KeysReport {
    fn subject(&self) -> &'static str {
        "keys of tokens"
    }

    fn encode(&self, families: &mut Families<'_>) -> fmt::Result {
        families.gauge(
            "ratelimit_token_keys_up",
            "1 if the last attempt of this node to fetch the keys of tokens did not fail",
            u64::from(self.status.is_up()),
        )?;
        families.counter(
            "ratelimit_token_keys_errors",
            "Failed attempts to fetch the keys of tokens",
            self.status.failures(),
        )
    }

    fn faults(&self) -> Vec<String> {
        self.status.faults()
    }

    fn tasks(&self) -> Vec<(&'static str, u64)> {
        vec![(self.task.name(), self.task.failures())]
    }
}
