//! What is asked, and what is answered.

use std::time::Duration;

use ratekeeper::tower::answer::{Bound, Quota, Standing};
use ratekeeper::{Check, Micros, Timestamp, Waiting};
use ratekeeper_proto::ratekeeper::v1;

/// A request to be decided: a domain, and descriptors of who asks for what.
#[derive(Clone, PartialEq, Debug)]
pub struct Question {
    pub(crate) domain: String,
    pub(crate) descriptors: Vec<v1::Descriptor>,
    /// In milliseconds.
    pub(crate) wait_ms_max: Option<u64>,
    pub(crate) has_standing: bool,
}

impl Question {
    /// A question in `domain`, without descriptors yet; the service wants at least one.
    #[must_use]
    pub fn new(domain: impl Into<String>) -> Self {
        Self {
            domain: domain.into(),
            descriptors: Vec::new(),
            wait_ms_max: None,
            has_standing: false,
        }
    }

    /// The question that is `check`, all of which is told. Limits that it brings along are left
    /// out: a layer has none.
    pub(crate) fn of(check: &Check<'_>) -> Self {
        let descriptors = check.descriptors.iter().map(|descriptor| v1::Descriptor {
            entries: descriptor
                .entries
                .iter()
                .map(|entry| v1::Entry {
                    key: entry.key.to_owned(),
                    value: entry.value.to_owned(),
                })
                .collect(),
            hits: u64::try_from(descriptor.hits)
                .ok()
                .filter(|hits| *hits != 1),
            limit: None,
            domain: descriptor.domain.unwrap_or_default().to_owned(),
        });
        Self {
            domain: check.domain.to_owned(),
            descriptors: descriptors.collect(),
            wait_ms_max: match check.waiting {
                Waiting::Cannot => Some(0),
                Waiting::Within(most) => Some(most.get() / 1_000),
                Waiting::Can => None,
            },
            has_standing: true,
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
            domain: String::new(),
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

    /// Says how long the request can be held back, in whole milliseconds: a leaky bucket denies
    /// what would have to wait longer, and gives it no turn. Any time unless this is said.
    #[must_use]
    pub fn wait_max(self, wait: Duration) -> Self {
        Self {
            wait_ms_max: Some(u64::try_from(wait.as_millis()).unwrap_or(u64::MAX)),
            ..self
        }
    }

    /// Asks for [`Answer::standing`]: what an answer over HTTP tells of the limits.
    #[must_use]
    pub fn with_standing(self) -> Self {
        Self {
            has_standing: true,
            ..self
        }
    }

    pub(crate) fn waiting(&self) -> Waiting {
        self.wait_ms_max
            .map_or(Waiting::Can, |ms| Waiting::Within(Micros::from_millis(ms)))
    }

    pub(crate) fn check(&self) -> v1::CheckRequest {
        v1::CheckRequest {
            domain: self.domain.clone(),
            descriptors: self.descriptors.clone(),
            statuses: false,
            wait_ms_max: self.wait_ms_max,
            standing: self.has_standing,
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
    /// What to tell the request's client over HTTP, if the question [asked](Question::with_standing)
    /// for it and somebody decided: not where the fallback lets everything pass, or nothing.
    pub standing: Option<Box<Told>>,
}

/// What to tell of a request's limits over HTTP.
#[derive(Clone, PartialEq, Debug)]
pub struct Told {
    /// How it stands with them.
    pub standing: Standing<'static>,
    /// After a denial, whom the limit holds for, secrets as fingerprints.
    pub scope: Option<String>,
}

/// A limit, and what it answered.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Limit {
    /// The rule's id; empty if the request brought the limit along.
    pub rule: String,
    /// Hits a window holds, or a larger burst; of concurrency, permits.
    pub limit: u64,
    /// Hits left.
    pub remaining: u64,
    /// Until there is more than `remaining`, zero if nothing is missing; on a denial, until the
    /// same hits would pass.
    pub reset_after: Duration,
    /// Until all is back.
    pub full_after: Duration,
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
            standing: None,
        }
    }

    /// The same, with what the service says of how the request stands.
    pub(crate) fn told(mut self, standing: Option<v1::Standing>) -> Self {
        self.standing = standing.map(|standing| {
            let scope = Some(standing.scope).filter(|scope| !scope.is_empty());
            let standing = Standing {
                allowed: self.allowed,
                degraded: self.degraded,
                at: Timestamp::from_micros(standing.decided_at_us),
                quotas: standing.policies.into_iter().map(quota).collect(),
                binding: standing.binding.map(|binding| Bound {
                    quota: quota(binding.policy.unwrap_or_default()),
                    rule: binding.rule.into(),
                    remaining: binding.remaining,
                    reset_after: Micros::new(binding.reset_after_us),
                    retry_after: binding.retry_after_us.map(Micros::new),
                }),
            };
            Box::new(Told { standing, scope })
        });
        self
    }
}

fn quota(policy: v1::Policy) -> Quota<'static> {
    Quota {
        name: policy.name.into(),
        limit: policy.limit,
        window: policy.window_us.map(Micros::new),
        is_concurrency: policy.window_us.is_none(),
    }
}

impl From<v1::CheckResponse> for Answer {
    fn from(answer: v1::CheckResponse) -> Self {
        let decision = answer.decision();
        Self::new(decision, answer.limit, answer.delay_ms, answer.degraded).told(answer.standing)
    }
}

impl From<v1::Limit> for Limit {
    fn from(limit: v1::Limit) -> Self {
        Self {
            rule: limit.rule,
            limit: limit.limit,
            remaining: limit.remaining,
            reset_after: Duration::from_millis(limit.reset_after_ms),
            full_after: Duration::from_millis(limit.full_after_ms),
            retry_after: limit.retry_after_ms.map(Duration::from_millis),
        }
    }
}
