//! What is asked, and what is answered.

use std::time::Duration;

use ratekeeper_proto::ratekeeper::v1;

/// A request to be decided: a domain, and descriptors of who asks for what.
#[derive(Clone, PartialEq, Debug)]
pub struct Question {
    pub(crate) domain: String,
    pub(crate) descriptors: Vec<v1::Descriptor>,
}

impl Question {
    /// A question in `domain`, without descriptors yet; the service wants at least one.
    #[must_use]
    pub fn new(domain: impl Into<String>) -> Self {
        Self {
            domain: domain.into(),
            descriptors: Vec::new(),
        }
    }

    /// Adds a descriptor that costs 1: its entries, in order.
    #[must_use]
    pub fn descriptor<K, V>(mut self, entries: impl IntoIterator<Item = (K, V)>) -> Self
    where
        K: Into<String>,
        V: Into<String>,
    {
        let entry = |(key, value): (K, V)| v1::Entry {
            key: key.into(),
            value: value.into(),
        };
        self.descriptors.push(v1::Descriptor {
            entries: entries.into_iter().map(entry).collect(),
            hits: None,
            limit: None,
        });
        self
    }

    /// Says what the last descriptor costs: 0 looks only, at most 2^53 - 1. Of a question
    /// without descriptors nothing changes.
    #[must_use]
    pub fn hits(mut self, hits: u64) -> Self {
        if let Some(last) = self.descriptors.last_mut() {
            last.hits = Some(hits);
        }
        self
    }

    pub(crate) fn check(&self) -> v1::CheckRequest {
        v1::CheckRequest {
            domain: self.domain.clone(),
            descriptors: self.descriptors.clone(),
            statuses: false,
        }
    }
}

/// How a request was decided.
#[derive(Clone, PartialEq, Debug)]
pub struct Answer {
    /// Whether it may pass.
    pub allowed: bool,
    /// The most restrictive limit; none if no enforced limit matched.
    pub limit: Option<Limit>,
    /// How long to hold the request back before it goes on.
    pub delay: Duration,
    /// Whether it was not counted where it belongs: the service's store had no answer, or the
    /// service had none and the [`Fallback`](crate::Fallback) answered.
    pub degraded: bool,
}

/// A limit, and what it answered.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Limit {
    /// The rule's id; empty if the request brought the limit along.
    pub rule: String,
    /// Hits a window holds; of concurrency, permits.
    pub limit: u64,
    /// Hits left.
    pub remaining: u64,
    /// Until the window ends or the bucket is full; on a denial, until the same hits would pass.
    pub reset_after: Duration,
    /// Until the same hits would pass; none if they pass now, and if they never will.
    pub retry_after: Option<Duration>,
}

/// How a request stands.
#[derive(Clone, PartialEq, Debug)]
pub struct Peek {
    /// Whether one hit on each descriptor would pass now.
    pub would_allow: bool,
    /// The most restrictive limit; none if no enforced limit matched.
    pub limit: Option<Limit>,
    /// Whether the service's store had no answer.
    pub degraded: bool,
}

impl Answer {
    /// When to come back after a denial; none if the request was allowed, and if no wait helps.
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        let limit = self.limit.as_ref().filter(|_| !self.allowed)?;
        limit.retry_after
    }

    pub(crate) fn new(
        decision: v1::Decision,
        limit: Option<v1::Limit>,
        delay_ms: u64,
        degraded: bool,
    ) -> Self {
        Self {
            allowed: decision == v1::Decision::Allow,
            limit: limit.map(Limit::from),
            delay: Duration::from_millis(delay_ms),
            degraded,
        }
    }
}

impl From<v1::CheckResponse> for Answer {
    fn from(answer: v1::CheckResponse) -> Self {
        Self::new(
            answer.decision(),
            answer.limit,
            answer.delay_ms,
            answer.degraded,
        )
    }
}

impl From<v1::Limit> for Limit {
    fn from(limit: v1::Limit) -> Self {
        Self {
            rule: limit.rule,
            limit: limit.limit,
            remaining: limit.remaining,
            reset_after: Duration::from_millis(limit.reset_after_ms),
            retry_after: limit.retry_after_ms.map(Duration::from_millis),
        }
    }
}
