//! Messages of `ratekeeper.v1` as requests and answers of its handlers.

use std::borrow::Cow;

use ratekeeper_proto::WireEntry;
use ratekeeper_proto::ratekeeper::v1;
use tonic::Status;

use crate::v1::{
    AcquireRequest, Answer, CheckRequest, DescriptorRequest, EntryRequest, HeldAnswer, LimitAnswer,
    Object, OverrideRequest, Reason, RefundRequest, Refusal, ReserveRequest, StandingAnswer,
    StandingPolicy, StatusAnswer, UnitName,
};

impl<'a> From<&'a v1::CheckRequest> for CheckRequest<'a> {
    fn from(message: &'a v1::CheckRequest) -> Self {
        Self {
            domain: Cow::Borrowed(&message.domain),
            descriptors: descriptors(&message.descriptors),
            wait_ms_max: message.wait_ms_max,
            standing: message.standing,
            statuses: message.statuses,
        }
    }
}

pub(super) fn check_requests(messages: &[v1::CheckRequest]) -> Vec<Object<CheckRequest<'_>>> {
    let messages = messages.iter();
    messages.map(|message| Object(message.into())).collect()
}

impl<'a> From<&'a v1::PeekRequest> for CheckRequest<'a> {
    fn from(message: &'a v1::PeekRequest) -> Self {
        Self {
            domain: Cow::Borrowed(&message.domain),
            descriptors: descriptors(&message.descriptors),
            wait_ms_max: message.wait_ms_max,
            standing: false,
            statuses: true,
        }
    }
}

impl<'a> From<&'a v1::AcquireRequest> for AcquireRequest<'a> {
    fn from(message: &'a v1::AcquireRequest) -> Self {
        Self {
            domain: Cow::Borrowed(&message.domain),
            descriptors: descriptors(&message.descriptors),
            idempotency_key: Cow::Borrowed(&message.idempotency_key),
            wait_ms_max: message.wait_ms_max,
            standing: message.standing,
        }
    }
}

impl<'a> From<&'a v1::ReserveRequest> for ReserveRequest<'a> {
    fn from(message: &'a v1::ReserveRequest) -> Self {
        Self {
            domain: Cow::Borrowed(&message.domain),
            descriptors: descriptors(&message.descriptors),
            hits: message.hits,
            ttl_ms: message.ttl_ms,
            idempotency_key: Cow::Borrowed(&message.idempotency_key),
            wait_ms_max: message.wait_ms_max,
        }
    }
}

impl<'a> From<&'a v1::RefundRequest> for RefundRequest<'a> {
    fn from(message: &'a v1::RefundRequest) -> Self {
        Self {
            domain: Cow::Borrowed(&message.domain),
            descriptors: descriptors(&message.descriptors),
            idempotency_key: Cow::Borrowed(&message.idempotency_key),
        }
    }
}

fn descriptors<'a>(messages: &'a [v1::Descriptor]) -> Vec<Object<DescriptorRequest<'a>>> {
    fn entry(message: &WireEntry) -> Object<EntryRequest<'_>> {
        Object(EntryRequest {
            key: Cow::Borrowed(&message.key),
            value: Cow::Borrowed(&message.value),
        })
    }
    let descriptor = |message: &'a v1::Descriptor| {
        Object(DescriptorRequest {
            domain: Cow::Borrowed(&message.domain),
            entries: message.entries.iter().map(entry).collect(),
            hits: message.hits,
            limit: message.limit.map(|limit| Object(limit.into())),
        })
    };
    messages.iter().map(descriptor).collect()
}

impl From<v1::Override> for OverrideRequest {
    fn from(message: v1::Override) -> Self {
        Self {
            requests_per_unit: message.requests_per_unit,
            unit: match message.unit() {
                v1::Unit::Unspecified => UnitName::Unspecified,
                v1::Unit::Second => UnitName::Second,
                v1::Unit::Minute => UnitName::Minute,
                v1::Unit::Hour => UnitName::Hour,
                v1::Unit::Day => UnitName::Day,
                v1::Unit::Week => UnitName::Week,
                v1::Unit::Month => UnitName::Month,
                v1::Unit::Year => UnitName::Year,
            },
        }
    }
}

/// Builds the answer to `check`.
pub(super) fn check_response(check: &CheckRequest<'_>, answer: &Answer<'_>) -> v1::CheckResponse {
    v1::CheckResponse {
        decision: decision(answer.allowed),
        limit: answer.limit.map(v1::Limit::from),
        delay_ms: answer.delay_ms().unwrap_or(0),
        degraded: answer.is_degraded(),
        unmatched: answer.is_unmatched(),
        unreadable: answer.unreadable.unwrap_or_default().to_owned(),
        statuses: match check.statuses {
            true => statuses(answer),
            false => Vec::new(),
        },
        standing: answer.standing.as_ref().map(v1::Standing::from),
    }
}

impl From<&Answer<'_>> for v1::PeekResponse {
    fn from(answer: &Answer<'_>) -> Self {
        Self {
            decision: decision(answer.allowed),
            limit: answer.limit.map(v1::Limit::from),
            degraded: answer.is_degraded(),
            unreadable: answer.unreadable.unwrap_or_default().to_owned(),
            statuses: statuses(answer),
        }
    }
}

impl From<&HeldAnswer<'_>> for v1::AcquireResponse {
    fn from(held: &HeldAnswer<'_>) -> Self {
        let answer = &held.answer;
        Self {
            decision: decision(answer.allowed),
            limit: answer.limit.map(v1::Limit::from),
            delay_ms: answer.delay_ms().unwrap_or(0),
            degraded: answer.is_degraded(),
            unreadable: answer.unreadable.unwrap_or_default().to_owned(),
            permit: held.token.unwrap_or_default().to_owned(),
            expires_after_ms: held.expires_after_ms.unwrap_or(0),
            repeated_before: held.repeated_before,
            standing: answer.standing.as_ref().map(v1::Standing::from),
        }
    }
}

impl From<&HeldAnswer<'_>> for v1::ReserveResponse {
    fn from(held: &HeldAnswer<'_>) -> Self {
        let answer = &held.answer;
        Self {
            decision: decision(answer.allowed),
            limit: answer.limit.map(v1::Limit::from),
            delay_ms: answer.delay_ms().unwrap_or(0),
            degraded: answer.is_degraded(),
            unreadable: answer.unreadable.unwrap_or_default().to_owned(),
            reservation: held.token.unwrap_or_default().to_owned(),
            expires_after_ms: held.expires_after_ms.unwrap_or(0),
            repeated_before: held.repeated_before,
        }
    }
}

impl From<&Answer<'_>> for v1::RefundResponse {
    fn from(answer: &Answer<'_>) -> Self {
        Self {
            limit: answer.limit.map(v1::Limit::from),
            statuses: statuses(answer),
            degraded: answer.is_degraded(),
        }
    }
}

fn decision(allowed: bool) -> i32 {
    match allowed {
        true => v1::Decision::Allow.into(),
        false => v1::Decision::Deny.into(),
    }
}

fn statuses(answer: &Answer<'_>) -> Vec<v1::Status> {
    let status = |status: StatusAnswer<'_>| v1::Status {
        decision: decision(status.allowed),
        limit: status.limit.map(v1::Limit::from),
        delay_ms: status.delay_ms.unwrap_or(0),
        unlimited_rule: status.unlimited_rule.unwrap_or_default().to_owned(),
    };
    answer.statuses().map(status).collect()
}

impl From<LimitAnswer<'_>> for v1::Limit {
    fn from(limit: LimitAnswer<'_>) -> Self {
        Self {
            rule: limit.rule.unwrap_or_default().to_owned(),
            limit: limit.limit,
            remaining: limit.remaining,
            reset_after_ms: limit.reset_after_ms,
            retry_after_ms: limit.retry_after_ms,
            full_after_ms: limit.full_after_ms,
        }
    }
}

impl From<&StandingAnswer<'_>> for v1::Standing {
    fn from(standing: &StandingAnswer<'_>) -> Self {
        Self {
            decided_at_us: standing.decided_at_us,
            policies: standing.policies.iter().map(v1::Policy::from).collect(),
            binding: standing.binding.as_ref().map(|binding| v1::Binding {
                policy: Some((&binding.policy).into()),
                rule: binding.rule.clone().into_owned(),
                remaining: binding.remaining,
                reset_after_us: binding.reset_after_us,
                retry_after_us: binding.retry_after_us,
            }),
            scope: standing.scope.clone().unwrap_or_default(),
        }
    }
}

impl From<&StandingPolicy<'_>> for v1::Policy {
    fn from(policy: &StandingPolicy<'_>) -> Self {
        Self {
            name: policy.name.clone().into_owned(),
            limit: policy.limit,
            window_us: policy.window_us,
        }
    }
}

impl From<Refusal> for Status {
    fn from(refusal: Refusal) -> Self {
        let message = refusal.sentence();
        match refusal.reason {
            Reason::Invalid | Reason::OutOfBounds | Reason::Unmatched => {
                Self::invalid_argument(message)
            }
            Reason::Unauthenticated => Self::unauthenticated(message),
            Reason::Forbidden => Self::permission_denied(message),
            Reason::State(_) => Self::failed_precondition(message),
            Reason::NoRoom => Self::resource_exhausted(message),
            Reason::Unavailable => Self::unavailable(message),
        }
    }
}
