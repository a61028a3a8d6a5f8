//! The keys of tokens that are fetched from a URL.

use super::rules_from::Following;
use crate::settings::Settings;
use anyhow::{Context as _, Result};
use ratekeeper_server::{Families, Monitored, Server};
use ratekeeper_sources::{KeysSource, SourceStatus};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
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
    pub(super) fn follow(self, server: &Server) -> Following {
        server.monitor(Arc::new(KeysReport(self.source.source_status())));
        Following::of(&tokio::spawn(self.source.run(self.pause)))
    }
}

/// The state of the source, for operators.
#[derive(Debug)]
struct KeysReport(SourceStatus);

impl Monitored for KeysReport {
    fn subject(&self) -> &'static str {
        "keys of tokens"
    }

    fn encode(&self, families: &mut Families<'_>) -> fmt::Result {
        families.gauge(
            "ratelimit_token_keys_up",
            "1 if the last attempt of this node to fetch the keys of tokens did not fail",
            u64::from(self.0.is_up()),
        )?;
        families.counter(
            "ratelimit_token_keys_errors",
            "Failed attempts to fetch the keys of tokens",
            self.0.failures(),
        )
    }

    fn faults(&self) -> Vec<String> {
        self.0.faults()
    }
}
