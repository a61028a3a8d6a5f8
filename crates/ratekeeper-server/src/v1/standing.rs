//! The standing of a request against its limits, for services that report it to their clients.

use std::borrow::Cow;

use ratekeeper_core::{Micros, Timestamp};
use ratekeeper_http::answer::{LimitStatus, Quota, scope};
use ratekeeper_limiter::{Check, Decision, Policy};
use serde::Serialize;

/// A `ratekeeper.v1.Standing`. Spans are microseconds, and not rounded.
#[derive(Serialize, Debug, Default)]
pub(crate) struct StandingAnswer<'a> {
    pub(crate) decided_at_us: u64,
    pub(crate) policies: Vec<StandingPolicy<'a>>,
    /// Absent if no enforced limit matched.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) binding: Option<StandingBinding<'a>>,
    /// Of a denial.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) scope: Option<String>,
}

#[derive(Serialize, Debug)]
pub(crate) struct StandingPolicy<'a> {
    pub(crate) name: Cow<'a, str>,
    pub(crate) limit: u64,
    /// Absent for concurrency, which has none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) window_us: Option<u64>,
}

#[derive(Serialize, Debug)]
pub(crate) struct StandingBinding<'a> {
    pub(crate) policy: StandingPolicy<'a>,
    pub(crate) rule: Cow<'a, str>,
    pub(crate) remaining: u64,
    pub(crate) reset_after_us: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) retry_after_us: Option<u64>,
}

impl<'a> StandingAnswer<'a> {
    /// Describes the standing of `check` against `policies`, as decided at the time `at`.
    pub(super) fn new(
        policies: &[Policy],
        decision: &'a Decision,
        check: &Check<'_>,
        at: Timestamp,
    ) -> Self {
        let standing = LimitStatus::new(policies, decision, at);
        let denied = (!decision.allowed()).then_some(check);
        Self {
            decided_at_us: at.as_micros(),
            policies: { standing.quotas }
                .into_iter()
                .map(StandingPolicy::from)
                .collect(),
            binding: standing.binding.map(|bound| StandingBinding {
                policy: bound.quota.into(),
                rule: bound.rule,
                remaining: bound.remaining,
                reset_after_us: bound.reset_after.get(),
                retry_after_us: bound.retry_after.map(Micros::get),
            }),
            scope: denied.and_then(|check| scope(decision, check.domain, check.descriptors)),
        }
    }
}

impl<'a> From<Quota<'a>> for StandingPolicy<'a> {
    fn from(quota: Quota<'a>) -> Self {
        Self {
            name: quota.name,
            limit: quota.limit,
            window_us: quota.window.map(Micros::get),
        }
    }
}
