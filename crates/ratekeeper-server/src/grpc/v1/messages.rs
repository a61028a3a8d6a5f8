//! Messages of `ratekeeper.v1` as requests and answers of its handlers.

use std::borrow::Cow;

use ratekeeper_core::Micros;
use ratekeeper_http::answer::{Quota, RequestStatus};
use ratekeeper_limiter::LimitStatus;
use ratekeeper_proto::WireEntry;
use ratekeeper_proto::ratekeeper::v1;
use ratekeeper_rules::Unit;
use tonic::Status;

use crate::protocol::v1::{
    AcquireRequest, AnsweredBy, CheckAnswer, CheckRequest, DescriptorRequest, EntryRequest,
    HeldAnswer, LimitAnswer, LimitRequest, Object, OverrideRequest, Reason, RefundRequest, Refusal,
    ReserveRequest, StatusAnswer, Statuses, WindowText,
};

impl<'a> From<&'a v1::CheckRequest> for CheckRequest<'a> {
    fn from(message: &'a v1::CheckRequest) -> Self {
        Self {
            domain: Cow::Borrowed(&message.domain),
            descriptors: descriptors(&message.descriptors),
            entries: None,
            hits: None,
            wait_ms_max: message.wait_ms_max,
            standing: message.standing,
            idempotency_key: Cow::Borrowed(&message.idempotency_key),
            statuses: message.statuses,
        }
    }
}

pub(super) fn check_requests(messages: &[v1::CheckRequest]) -> Vec<Object<CheckRequest<'_>>> {
    let messages = messages.iter();
    messages.map(|message| Object(message.into())).collect()
}

impl<'a> From<&'a v1::LimitRequest> for LimitRequest<'a> {
    fn from(message: &'a v1::LimitRequest) -> Self {
        let is_given = |number: &u64| *number > 0;
        Self {
            identifier: Cow::Borrowed(&message.identifier),
            limit: Some(message.limit).filter(is_given),
            duration: Some(message.duration_ms)
                .filter(is_given)
                .map(WindowText::Millis),
            algorithm: Cow::Borrowed(&message.algorithm),
            burst: message.burst,
            rule: Cow::Borrowed(&message.rule),
            domain: Cow::Borrowed(&message.domain),
            cost: message.cost,
        }
    }
}

pub(super) fn limit_requests(messages: &[v1::LimitRequest]) -> Vec<Object<LimitRequest<'_>>> {
    let messages = messages.iter();
    messages.map(|message| Object(message.into())).collect()
}

impl From<LimitAnswer> for v1::LimitResponse {
    fn from(answer: LimitAnswer) -> Self {
        let LimitAnswer {
            success,
            limit,
            remaining,
            reset,
            reset_after_ms,
            retry_after_ms,
            degraded,
        } = answer;
        Self {
            success,
            limit,
            remaining,
            reset_at_ms: reset,
            reset_after_ms,
            retry_after_ms,
            degraded,
        }
    }
}

impl<'a> From<&'a v1::PeekRequest> for CheckRequest<'a> {
    fn from(message: &'a v1::PeekRequest) -> Self {
        Self {
            domain: Cow::Borrowed(&message.domain),
            descriptors: descriptors(&message.descriptors),
            entries: None,
            hits: None,
            wait_ms_max: message.wait_ms_max,
            standing: false,
            idempotency_key: Cow::Borrowed(""),
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
                v1::Unit::Unspecified => None,
                v1::Unit::Second => Some(Unit::Second),
                v1::Unit::Minute => Some(Unit::Minute),
                v1::Unit::Hour => Some(Unit::Hour),
                v1::Unit::Day => Some(Unit::Day),
                v1::Unit::Week => Some(Unit::Week),
                v1::Unit::Month => Some(Unit::Month),
                v1::Unit::Year => Some(Unit::Year),
            },
        }
    }
}

// The answers from here on are taken apart by all their fields, so that none is forgotten: what a service does not say, its
// gateways cannot tell.

/// Builds the answer to `check`.
pub(super) fn check_response(
    check: &CheckRequest<'_>,
    answer: &CheckAnswer<'_>,
) -> v1::CheckResponse {
    let CheckAnswer {
        allowed,
        by,
        delay_ms,
        degraded,
        unmatched,
        unreadable,
        statuses: descriptors,
        limits,
    } = answer;
    v1::CheckResponse {
        decision: decision(*allowed),
        limit: by.limit().map(limit),
        delay_ms: delay_ms.unwrap_or(0),
        degraded: *degraded,
        unmatched: *unmatched,
        unreadable: unreadable.unwrap_or_default().to_owned(),
        statuses: match check.statuses {
            true => statuses(*descriptors),
            false => Vec::new(),
        },
        standing: limits.as_ref().map(standing),
    }
}

impl From<&CheckAnswer<'_>> for v1::PeekResponse {
    fn from(answer: &CheckAnswer<'_>) -> Self {
        let CheckAnswer {
            allowed,
            by,
            // Each status has its own.
            delay_ms: _,
            degraded,
            unmatched,
            unreadable,
            statuses: descriptors,
            // No request passes that would need its headers.
            limits: _,
        } = answer;
        Self {
            decision: decision(*allowed),
            limit: by.limit().map(limit),
            degraded: *degraded,
            unmatched: *unmatched,
            unreadable: unreadable.unwrap_or_default().to_owned(),
            statuses: statuses(*descriptors),
        }
    }
}

impl From<&HeldAnswer<'_>> for v1::AcquireResponse {
    fn from(held: &HeldAnswer<'_>) -> Self {
        let HeldAnswer {
            answer,
            permit,
            // An acquisition makes none.
            reservation: _,
            expires_after_ms,
            repeated_before,
        } = held;
        let CheckAnswer {
            allowed,
            by,
            delay_ms,
            degraded,
            unmatched,
            unreadable,
            // The message has no room for them.
            statuses: _,
            limits,
        } = answer;
        Self {
            decision: decision(*allowed),
            limit: by.limit().map(limit),
            delay_ms: delay_ms.unwrap_or(0),
            degraded: *degraded,
            unmatched: *unmatched,
            unreadable: unreadable.unwrap_or_default().to_owned(),
            permit: permit.unwrap_or_default().to_owned(),
            expires_after_ms: expires_after_ms.unwrap_or(0),
            repeated_before: *repeated_before,
            standing: limits.as_ref().map(standing),
        }
    }
}

impl From<&HeldAnswer<'_>> for v1::ReserveResponse {
    fn from(held: &HeldAnswer<'_>) -> Self {
        let HeldAnswer {
            answer,
            // A reservation takes none.
            permit: _,
            reservation,
            expires_after_ms,
            repeated_before,
        } = held;
        let CheckAnswer {
            allowed,
            by,
            delay_ms,
            degraded,
            unmatched,
            unreadable,
            // The message has no room for them.
            statuses: _,
            // Nor can it be asked for.
            limits: _,
        } = answer;
        Self {
            decision: decision(*allowed),
            limit: by.limit().map(limit),
            delay_ms: delay_ms.unwrap_or(0),
            degraded: *degraded,
            unmatched: *unmatched,
            unreadable: unreadable.unwrap_or_default().to_owned(),
            reservation: reservation.unwrap_or_default().to_owned(),
            expires_after_ms: expires_after_ms.unwrap_or(0),
            repeated_before: *repeated_before,
        }
    }
}

impl From<&CheckAnswer<'_>> for v1::RefundResponse {
    fn from(answer: &CheckAnswer<'_>) -> Self {
        let CheckAnswer {
            // A refund asks for no decision, and has nothing to wait for.
            allowed: _,
            delay_ms: _,
            by,
            degraded,
            unmatched,
            // One that cannot be read is refused.
            unreadable: _,
            statuses: descriptors,
            // Nor can it be asked for.
            limits: _,
        } = answer;
        Self {
            limit: by.limit().map(limit),
            statuses: statuses(*descriptors),
            degraded: *degraded,
            unmatched: *unmatched,
        }
    }
}

fn decision(allowed: bool) -> i32 {
    match allowed {
        true => v1::Decision::Allow.into(),
        false => v1::Decision::Deny.into(),
    }
}

fn statuses(statuses: Statuses<'_>) -> Vec<v1::Status> {
    let status = |status: StatusAnswer<'_>| v1::Status {
        decision: decision(status.allowed),
        limit: status.by.limit().map(limit),
        delay_ms: status.delay_ms.unwrap_or(0),
        unlimited_rule: match status.by {
            AnsweredBy::Unlimited(rule) => rule.to_owned(),
            AnsweredBy::None | AnsweredBy::Limit(_) => String::new(),
        },
    };
    statuses.iter().map(status).collect()
}

fn limit(limit: &LimitStatus<'_>) -> v1::Limit {
    let LimitStatus {
        rule,
        limit,
        remaining,
        reset_after,
        full_after,
        retry_after,
        is_over,
        debt,
    } = limit;
    v1::Limit {
        rule: rule.as_deref().unwrap_or_default().to_owned(),
        limit: *limit,
        remaining: *remaining,
        reset_after_us: reset_after.get(),
        retry_after_us: retry_after.map(Micros::get),
        full_after_us: full_after.get(),
        is_over: *is_over,
        debt: *debt,
    }
}

fn standing(limits: &RequestStatus<'_>) -> v1::Standing {
    // The others are fields of the answer itself.
    let RequestStatus {
        allowed: _,
        degraded: _,
        at,
        quotas,
        binding,
        scope,
    } = limits;
    v1::Standing {
        decided_at_us: at.as_micros(),
        policies: quotas.iter().map(policy).collect(),
        policy: binding.as_ref().map(|binding| policy(&binding.quota)),
        scope: scope.clone().unwrap_or_default(),
    }
}

fn policy(quota: &Quota<'_>) -> v1::Policy {
    v1::Policy {
        name: quota.name.clone().into_owned(),
        limit: quota.limit,
        window_us: quota.window.map(Micros::get),
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
            Reason::NoRoom | Reason::Guessing => Self::resource_exhausted(message),
            Reason::NoRules => Self::not_found(message),
            Reason::Unavailable => Self::unavailable(message),
        }
    }
}
