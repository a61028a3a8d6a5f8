//! From decisions to our protocol's words.

use ratekeeper_core::{Micros, Timestamp, Verdict};
use ratekeeper_http::answer::{Quota, Standing, scope};
use ratekeeper_limiter::{self as limiter, Binding, Check, Code, Decision, Status};
use ratekeeper_proto::ratekeeper::v1;

/// Builds the answer to a check.
pub(super) fn check(decision: &Decision, statuses: bool, is_peek: bool) -> v1::CheckResponse {
    v1::CheckResponse {
        decision: word(decision.allowed()).into(),
        limit: binding(decision, is_peek),
        delay_ms: millis(decision.delay()).unwrap_or(0),
        degraded: decision.is_degraded(),
        unmatched: decision.is_unmatched(),
        statuses: match statuses {
            true => self::statuses(decision),
            false => Vec::new(),
        },
        standing: None,
    }
}

/// Describes the standing of `check` against `policies`, as decided at the time `at`.
pub(super) fn standing(
    policies: &[limiter::Policy],
    decision: &Decision,
    check: &Check<'_>,
    at: Timestamp,
) -> v1::Standing {
    let standing = Standing::new(policies, decision, at);
    let scope = match decision.allowed() {
        true => None,
        false => scope(decision, check.domain, check.descriptors),
    };
    v1::Standing {
        decided_at_us: at.as_micros(),
        policies: standing.quotas.iter().map(policy).collect(),
        binding: standing.binding.as_ref().map(|bound| v1::Binding {
            policy: Some(policy(&bound.quota)),
            rule: bound.rule.clone().into_owned(),
            remaining: bound.remaining,
            reset_after_us: bound.reset_after.get(),
            retry_after_us: bound.retry_after.map(Micros::get),
        }),
        scope: scope.unwrap_or_default(),
    }
}

fn policy(quota: &Quota<'_>) -> v1::Policy {
    v1::Policy {
        name: quota.name.clone().into_owned(),
        limit: quota.limit,
        window_us: quota.window.map(Micros::get),
    }
}

pub(super) const fn word(allowed: bool) -> v1::Decision {
    match allowed {
        true => v1::Decision::Allow,
        false => v1::Decision::Deny,
    }
}

/// The most restrictive limit. If the request passed, only a peek gets a time to come back, though
/// one of its limits may be exceeded without denying it (quota mode).
pub(super) fn binding(decision: &Decision, is_peek: bool) -> Option<v1::Limit> {
    let mut limit = limit(decision, decision.binding()?);
    if decision.allowed() && !is_peek {
        limit.retry_after_ms = None;
    }
    Some(limit)
}

pub(super) fn statuses(decision: &Decision) -> Vec<v1::Status> {
    let status = |status: &Status| v1::Status {
        decision: word(status.code == Code::Ok).into(),
        limit: status
            .binding
            .as_ref()
            .map(|binding| limit(decision, binding)),
        delay_ms: millis(status.delay).unwrap_or(0),
        unlimited_rule: match status.unlimited {
            Some(index) => decision.snapshot().rules().rule(index).id.to_string(),
            None => String::new(),
        },
    };
    decision.statuses().iter().map(status).collect()
}

fn limit(decision: &Decision, binding: &Binding) -> v1::Limit {
    let answered = &binding.answered;
    v1::Limit {
        rule: decision
            .rule(binding)
            .map(|rule| String::from(&*rule.id))
            .unwrap_or_default(),
        limit: binding.ceiling,
        remaining: answered.remaining,
        reset_after_ms: answered.reset_after.as_millis_ceil(),
        full_after_ms: answered.full_after.as_millis_ceil(),
        retry_after_ms: match answered.verdict {
            Verdict::Never => None,
            Verdict::Fits | Verdict::Later => millis(answered.retry_after),
        },
    }
}

/// None if there is nothing to wait for, or no wait helps.
pub(super) fn millis(span: Micros) -> Option<u64> {
    (span > Micros::ZERO && span < Micros::MAX).then(|| span.as_millis_ceil())
}
