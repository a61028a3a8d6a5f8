//! Texts that are fetched again and again, from a URL, Redis or etcd.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::time::Duration;

use ratekeeper_rules::Source;
use ratekeeper_server::{DeliveryError, RulesFeed};
use tokio::time::sleep;

use crate::SourceStatus;
use crate::backoff::Backoff;
use crate::etcd::{EtcdConfig, EtcdPlace};
use crate::fetch_error::FetchError;
use crate::redis::{RedisKeyConfig, RedisPlace};
use crate::url::{BadUrl, UrlConfig, UrlFetcher};

/// A place of texts, and how to ask for them.
#[derive(Clone, Debug)]
pub enum TextsPlace {
    /// One text at a URL.
    Url(UrlConfig),
    /// Under a key of Redis.
    Redis(RedisKeyConfig),
    /// Under a key of etcd, or below it.
    Etcd(EtcdConfig),
}

impl TextsPlace {
    /// The place, for people; names the kept rules.
    #[must_use]
    pub fn name(&self) -> &str {
        match self {
            Self::Url(config) => &config.url,
            Self::Redis(config) => config.name(),
            Self::Etcd(config) => config.name(),
        }
    }
}

/// Texts to be put into a place.
#[derive(Clone, Debug)]
pub enum NewTexts {
    /// One text, for a key that has one.
    One(String),
    /// A text of each name.
    Many(Vec<Source>),
}

/// An open source.
#[derive(Debug)]
enum OpenSource {
    Url(Box<UrlFetcher>),
    Redis(Box<RedisPlace>),
    Etcd(Box<EtcdPlace>),
}

impl OpenSource {
    fn new(config: TextsPlace) -> Result<Self, BadUrl> {
        Ok(match config {
            TextsPlace::Url(config) => Self::Url(Box::new(UrlFetcher::new(config)?)),
            TextsPlace::Redis(config) => Self::Redis(Box::new(RedisPlace::new(&config))),
            TextsPlace::Etcd(config) => Self::Etcd(Box::new(EtcdPlace::new(config))),
        })
    }

    /// All texts; [`None`] if the place knows that they are the same as the last time.
    async fn fetch(&mut self) -> Result<Option<Vec<Source>>, FetchError> {
        match self {
            Self::Url(url) => {
                let text = url.fetch().await?;
                let name = url.url().to_owned();
                Ok(text.map(|text| vec![Source { name, text }]))
            }
            Self::Redis(key) => key.fetch().await.map(Some),
            Self::Etcd(keys) => keys.fetch().await.map(Some),
        }
    }

    /// Forgets which texts were fetched last.
    fn forget(&mut self) {
        match self {
            Self::Url(url) => url.forget(),
            // They tell all texts each time.
            Self::Redis(_) | Self::Etcd(_) => {}
        }
    }

    /// Waits until the texts may have changed, for up to `interval`.
    async fn idle(&mut self, interval: Duration) {
        match self {
            Self::Url(_) | Self::Redis(_) => sleep(interval).await,
            Self::Etcd(keys) => keys.changed(interval).await,
        }
    }
}

/// Fetches texts, and delivers them when they change.
#[derive(Debug)]
pub struct TextsSource {
    place: OpenSource,
    interval: Duration,
    status: SourceStatus,
    /// The fingerprint of the texts that were delivered last.
    delivered: Option<u64>,
}

impl TextsSource {
    /// Fetches nothing yet. `interval` is the pause between two fetches.
    ///
    /// # Errors
    /// The URL is none. Files are read when it connects.
    ///
    /// # Panics
    /// If it is called outside a Tokio runtime.
    pub fn new(place: TextsPlace, interval: Duration) -> Result<Self, BadUrl> {
        Ok(Self {
            status: SourceStatus::new(place.name().to_owned(), "rules"),
            place: OpenSource::new(place)?,
            interval,
            delivered: None,
        })
    }

    /// The state of the fetches, for operators.
    #[must_use]
    pub fn source_status(&self) -> SourceStatus {
        self.status.clone()
    }

    /// Fetches all texts once, sorted by name.
    ///
    /// # Errors
    /// They cannot be fetched.
    pub async fn fetch(&mut self) -> Result<Vec<Source>, FetchError> {
        self.place.fetch().await.map(Option::unwrap_or_default)
    }

    /// Puts `texts` in place of `before`, which were fetched from there, or of nothing. Readers see all of them or none.
    ///
    /// # Errors
    /// The place does not take them. If there was no answer, they may be there.
    pub async fn replace(&mut self, before: &[Source], texts: NewTexts) -> Result<(), FetchError> {
        match &mut self.place {
            OpenSource::Url(_) => Err(FetchError::ReadOnly),
            OpenSource::Redis(key) => key.replace(texts).await,
            OpenSource::Etcd(keys) => keys.replace(before, texts).await,
        }
    }

    /// Fetches until the server that takes the rules ends. May be called again after a panic ended it.
    pub async fn run(&mut self, feed: &RulesFeed) {
        // What was fetched before a panic may not have been delivered.
        self.place.forget();
        let mut backoff = Backoff::default();
        loop {
            match self.place.fetch().await {
                Ok(texts) => {
                    self.status.reached();
                    backoff.reset();
                    if !self.deliver(texts, feed).await {
                        return;
                    }
                    // Nodes that started together do not go on together.
                    let interval = self.interval.mul_f64(0.9 + fastrand::f64() / 5.0);
                    self.place.idle(interval).await;
                }
                Err(why) => {
                    self.status.failed(why.to_string());
                    sleep(backoff.next().min(self.interval)).await;
                }
            }
        }
    }

    /// Delivers texts, if they are others; returns false once the server has ended.
    async fn deliver(&mut self, texts: Option<Vec<Source>>, feed: &RulesFeed) -> bool {
        let Some(texts) = texts else {
            return true;
        };
        let print = fingerprint(&texts);
        if self.delivered == Some(print) {
            return true;
        }
        let taken = feed.deliver(texts).await;
        // Behind it: a panic of ours before that has delivered nothing.
        self.delivered = Some(print);
        self.status.delivered(taken.is_err());
        taken != Err(DeliveryError::Ended)
    }
}

/// The fingerprint of texts. Only compared with others of this process, so the hash need not last.
fn fingerprint(texts: &[Source]) -> u64 {
    let mut hasher = DefaultHasher::new();
    texts.hash(&mut hasher);
    hasher.finish()
}

/// The longest name of a text, in bytes.
const NAME_BYTES_MAX: usize = 255;

/// A text under its name, which messages can show.
pub(crate) fn source(name: &[u8], text: Vec<u8>) -> Result<Source, FetchError> {
    let name = String::from_utf8_lossy(name).into_owned();
    let is_shown = (1..=NAME_BYTES_MAX).contains(&name.len()) && !name.contains(char::is_control);
    if !is_shown {
        return Err(FetchError::Name(
            name.chars().take(NAME_BYTES_MAX).collect(),
        ));
    }
    let text = String::from_utf8(text).map_err(|_| FetchError::NotText(Some(name.clone())))?;
    Ok(Source { name, text })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_texts_can_be_shown() {
        let good = source(b"a.yaml", b"domain: d".to_vec()).expect("it is good");
        assert_eq!((&*good.name, &*good.text), ("a.yaml", "domain: d"));
        for (name, text, part) in [
            (&b""[..], &b""[..], "cannot be the name"),
            (b"a\nb", b"", "\"a\\nb\" cannot be"),
            (&[b'a'; 256], b"", "cannot be the name"),
            (b"a", b"\xff", "the text a is not UTF-8"),
        ] {
            let said = source(name, text.to_vec()).expect_err(part).to_string();
            assert!(said.contains(part), "{said}");
        }
    }
}
