//! The keys of tokens at a URL, fetched again and again.

use std::time::Duration;

use ratekeeper_http::{KeyFeed, KeysPlace};
use ratekeeper_tls::TlsFiles;
use tokio::time::{Instant, sleep};

use crate::SourceStatus;
use crate::backoff::Backoff;
use crate::url::{BadUrl, UrlConfig, UrlFetcher};

/// The interval at which tokens with unknown keys are looked for.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// The shortest time between two fetches because of unknown keys, which anybody can name.
const UNKNOWN_EVERY: Duration = Duration::from_secs(30);

/// Fetches the keys of tokens: each interval, and soon after a token has named an unknown one.
#[derive(Debug)]
pub struct KeysSource {
    feed: KeyFeed,
    fetcher: UrlFetcher,
    status: SourceStatus,
    backoff: Backoff,
    /// The set that was fetched last, and what is wrong about it.
    last: String,
    fault: Option<String>,
}

impl KeysSource {
    /// Fetches nothing yet.
    ///
    /// # Errors
    /// The URL is none.
    pub fn new(feed: KeyFeed) -> Result<Self, BadUrl> {
        let KeysPlace {
            url, authorities, ..
        } = feed.place();
        let config = UrlConfig {
            url: url.to_string(),
            server_name: None,
            tls: TlsFiles {
                authorities: authorities.clone(),
                identity: None,
            },
            token: None,
        };
        Ok(Self {
            status: SourceStatus::new(url.to_string(), "keys of tokens"),
            fetcher: UrlFetcher::new(config)?,
            backoff: Backoff::default(),
            last: String::new(),
            fault: None,
            feed,
        })
    }

    /// The state of the fetches, for operators.
    #[must_use]
    pub fn source_status(&self) -> SourceStatus {
        self.status.clone()
    }

    /// Fetches the keys once, and returns the pause before they are to be fetched again. If they cannot be, or are none, the
    /// last good ones stay.
    pub async fn fetch(&mut self) -> Duration {
        let every = self.feed.place().refresh_every;
        match self.fetcher.fetch().await {
            Ok(Some(text)) if text != self.last => {
                let taken = self.feed.put(text.as_bytes());
                self.status.delivered(taken.is_err());
                self.fault = taken.err().map(|fault| fault.to_string());
                self.last = text;
            }
            Ok(_) => {}
            Err(error) => {
                self.status.failed(error.to_string());
                return self.backoff.next().min(every);
            }
        }
        self.backoff.reset();
        match &self.fault {
            None => self.status.reached(),
            Some(why) => self.status.failed(why.clone()),
        }
        every
    }

    /// Goes on to fetch, for ever; first after `pause`. May be called again after a panic ended it.
    pub async fn run(&mut self, pause: Duration) {
        // What was fetched before a panic may not have been put in force.
        self.fetcher.forget();
        let mut next = Instant::now() + pause;
        let mut may_ask = Instant::now();
        let mut is_wanted = false;
        loop {
            sleep(LOOK_EVERY).await;
            let now = Instant::now();
            is_wanted |= self.feed.take_wanted();
            let is_asked = is_wanted && now >= may_ask;
            if !is_asked && now < next {
                continue;
            }
            if is_asked {
                may_ask = now + UNKNOWN_EVERY;
            }
            is_wanted = false;
            next = now + self.fetch().await;
        }
    }
}
