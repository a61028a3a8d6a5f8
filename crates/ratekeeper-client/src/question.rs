//! Questions to the service, and its answers.

use std::time::Duration;

use ratekeeper::limiter::LimitStatus;
use ratekeeper::tower::answer::{Bound, Quota, RequestStatus};
use ratekeeper::{Check, Micros, Timestamp, Waiting};
use ratekeeper_proto::WireEntry;
use ratekeeper_proto::ratekeeper::v1;
use tonic::Request;
use tonic::metadata::{Ascii, MetadataValue};

/// A request to decide: a domain, and descriptors of the request.
#[derive(Clone, PartialEq, Debug)]
pub struct CheckRequest {
    pub(crate) domain: String,
    pub(crate) descriptors: Vec<v1::Descriptor>,
    /// In milliseconds.
    pub(crate) wait_ms_max: Option<u64>,
    /// True to ask for what an HTTP response reports.
    pub(crate) with_status: bool,
    /// The position of the question in the trace of its request.
    traceparent: Option<MetadataValue<Ascii>>,
}

impl CheckRequest {
    /// A question in `domain` without descriptors; the service requires at least one.
    #[must_use]
    pub fn new(domain: impl Into<String>) -> Self {
        Self {
            domain: domain.into(),
            descriptors: Vec::new(),
            wait_ms_max: None,
            with_status: false,
            traceparent: None,
        }
    }

    /// The question with everything that `check` has, except limits that the request brings along:
    /// a layer has none.
    pub(crate) fn of(check: &Check<'_>) -> Self {
        let descriptors = check.descriptors().map(|descriptor| v1::Descriptor {
            entries: descriptor
                .entries
                .iter()
                .map(|entry| WireEntry {
                    key: entry.key.to_owned(),
                    value: entry.value.to_owned(),
                })
                .collect(),
            hits: u64::try_from(descriptor.terms.hits)
                .ok()
                .filter(|hits| *hits != 1),
            limit: None,
            domain: descriptor.terms.domain.unwrap_or_default().to_owned(),
        });
        Self {
            domain: check.domain.to_owned(),
            descriptors: descriptors.collect(),
            wait_ms_max: match check.waiting {
                Waiting::Cannot => Some(0),
                Waiting::Within(most) => Some(most.get() / 1_000),
                Waiting::Can => None,
            },
            with_status: true,
            traceparent: (check.observer.as_ref())
                .and_then(|observer| observer.traceparent_for_service()?.parse().ok()),
        }
    }

    /// Adds the trace's context to a call that asks this question.
    pub(crate) fn traced<M>(&self, mut call: Request<M>) -> Request<M> {
        if let Some(context) = &self.traceparent {
            call.metadata_mut().insert("traceparent", context.clone());
        }
        call
    }

    /// Adds a descriptor that costs one hit: its entries, in order.
    #[must_use]
    pub fn descriptor<K, V>(mut self, entries: impl IntoIterator<Item = (K, V)>) -> Self
    where
        K: Into<String>,
        V: Into<String>,
    {
        let entry = |(key, value): (K, V)| WireEntry {
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

    /// Sets the hits of the last descriptor: at most 2^53 - 1; 0 only looks. Without descriptors
    /// this has no effect.
    #[must_use]
    pub fn hits(mut self, hits: u64) -> Self {
        if let Some(last) = self.descriptors.last_mut() {
            last.hits = Some(hits);
        }
        self
    }

    /// Sets the longest time that the request can be delayed, in whole milliseconds: a leaky bucket
    /// denies a request that would have to wait longer, and reserves no turn for it. No limit by
    /// default.
    #[must_use]
    pub fn wait_max(self, wait: Duration) -> Self {
        Self {
            wait_ms_max: Some(u64::try_from(wait.as_millis()).unwrap_or(u64::MAX)),
            ..self
        }
    }

    /// Asks for [`CheckAnswer::status`], the information that an HTTP response has on the limits.
    #[must_use]
    pub fn with_status(self) -> Self {
        Self {
            with_status: true,
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
            standing: self.with_status,
            idempotency_key: String::new(),
        }
    }
}

/// The decision on a request.
#[derive(Clone, PartialEq, Debug)]
pub struct CheckAnswer {
    /// True if the request may pass.
    pub allowed: bool,
    /// The most restrictive limit; none if no enforced limit matched.
    pub limit: Option<LimitStatus<'static>>,
    /// The time to delay the request before it proceeds.
    pub delay: Duration,
    /// True if the request was not counted in its store: the store did not answer the service, or
    /// the service did not answer and the [`FallbackPolicy`](crate::FallbackPolicy) decided.
    pub degraded: bool,
    /// The information for an HTTP response, if the question [asked](CheckRequest::with_status) for
    /// it. None if the fallback let the request pass, or denied it, without counting.
    pub status: Option<Box<RequestStatus<'static>>>,
}

/// The state of a request's limits.
#[derive(Clone, PartialEq, Debug)]
pub struct Peek {
    /// True if one hit on each descriptor would pass now.
    pub would_allow: bool,
    /// The most restrictive limit; none if no enforced limit matched.
    pub limit: Option<LimitStatus<'static>>,
    /// True if the service's store did not answer.
    pub degraded: bool,
}

impl CheckAnswer {
    /// The time to wait after a denial; none if the request was allowed, or no wait helps.
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        let limit = self.limit.as_ref().filter(|_| !self.allowed)?;
        limit.retry_after.map(Duration::from)
    }

    pub(crate) fn new(
        decision: v1::Decision,
        limit: Option<v1::Limit>,
        delay_ms: u64,
        degraded: bool,
    ) -> Self {
        Self {
            allowed: decision == v1::Decision::Allow,
            limit: limit.map(limit_status),
            delay: Duration::from_millis(delay_ms),
            degraded,
            status: None,
        }
    }

    /// Adds the service's account of the limits.
    pub(crate) fn told(mut self, standing: Option<v1::Standing>) -> Self {
        self.status = standing.map(|standing| {
            let policy = standing.policy.map(quota);
            let binding = policy.zip(self.limit.clone());
            Box::new(RequestStatus {
                allowed: self.allowed,
                degraded: self.degraded,
                at: Timestamp::from_micros(standing.decided_at_us),
                quotas: standing.policies.into_iter().map(quota).collect(),
                binding: binding.map(|(quota, status)| Bound { quota, status }),
                scope: Some(standing.scope).filter(|scope| !scope.is_empty()),
            })
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

pub(crate) fn limit_status(limit: v1::Limit) -> LimitStatus<'static> {
    LimitStatus {
        rule: Some(limit.rule)
            .filter(|rule| !rule.is_empty())
            .map(Into::into),
        limit: limit.limit,
        remaining: limit.remaining,
        reset_after: Micros::new(limit.reset_after_us),
        full_after: Micros::new(limit.full_after_us),
        retry_after: limit.retry_after_us.map(Micros::new),
        is_over: limit.is_over,
        debt: limit.debt,
    }
}

impl From<v1::CheckResponse> for CheckAnswer {
    fn from(answer: v1::CheckResponse) -> Self {
        let decision = answer.decision();
        Self::new(decision, answer.limit, answer.delay_ms, answer.degraded).told(answer.standing)
    }
}
