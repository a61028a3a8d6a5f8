//! From our words to Envoy's.

use ratekeeper_core::Micros;
use ratekeeper_http::answer;
use ratekeeper_limiter::{Binding, Clock, Code, Decision, DescriptorAnswer, Policy};
use ratekeeper_proto::envoy::service::ratelimit::v3::rate_limit_response::{
    Code as WireCode, DescriptorStatus, RateLimit, rate_limit::Unit as WireUnit,
};
use ratekeeper_proto::envoy::service::ratelimit::v3::{RateLimitRequest, RateLimitResponse};
use ratekeeper_rules::{Profile, Unit};

use super::{headers, metadata};
use crate::config::RlsConfig;

/// The answer to a decision; `policies` are those to be told, if any are, and metadata tell of `request`.
pub(super) fn answer(
    config: &RlsConfig,
    request: Option<&RateLimitRequest>,
    decision: &Decision,
    policies: &[Policy],
    clock: &Clock,
) -> RateLimitResponse {
    let until_reset = |binding: &Binding| match config.profile {
        // On a denial that is retry_after, as every other edge says it.
        Profile::Ratekeeper => binding.answered.reset_after,
        Profile::Envoy => window_end(binding, clock),
    };
    let statuses: Vec<_> = decision
        .answers()
        .iter()
        .map(|answer| descriptor_status(decision, answer, until_reset))
        .collect();
    let overall = if decision.allowed() {
        WireCode::Ok
    } else {
        WireCode::OverLimit
    };
    let mut response = RateLimitResponse {
        overall_code: overall.into(),
        ..Default::default()
    };
    if let Some(names) = &config.limit_headers {
        response
            .response_headers_to_add
            .extend(headers::envoyproxy_ratelimit(names, decision, &statuses));
    }
    if config.draft_headers {
        response.response_headers_to_add.extend(
            answer::draft(policies, decision).map(|(name, value)| headers::header(name, value)),
        );
    }
    if config.degraded_header && decision.is_degraded() {
        response.response_headers_to_add.push(headers::degraded());
    }
    if config.dynamic_metadata {
        response.dynamic_metadata =
            request.map(|request| metadata::of(config.profile, request, decision));
    }
    response.statuses = statuses;
    response
}

fn descriptor_status(
    decision: &Decision,
    answer: &DescriptorAnswer,
    until_reset: impl Fn(&Binding) -> Micros,
) -> DescriptorStatus {
    let code = match answer.code {
        Code::Ok => WireCode::Ok,
        Code::OverLimit => WireCode::OverLimit,
    };
    let mut wire = DescriptorStatus {
        code: code.into(),
        ..Default::default()
    };
    if answer.unlimited.is_some() {
        wire.limit_remaining = u32::MAX;
    } else if let Some(binding) = &answer.binding {
        wire.current_limit = Some(current_limit(decision, binding));
        wire.limit_remaining = match answer.code {
            Code::Ok if binding.answered.fits() => saturated(binding.answered.remaining),
            // Over the limit, enforced or not, nothing is left, as envoyproxy/ratelimit has it.
            _ => 0,
        };
        wire.duration_until_reset = Some(whole_seconds(until_reset(binding)));
    }
    wire
}

fn current_limit(decision: &Decision, binding: &Binding) -> RateLimit {
    let rule = decision.rule(binding);
    let name = rule
        .and_then(|rule| rule.name.as_deref())
        .unwrap_or_default();
    RateLimit {
        // A window that no unit describes says its name instead: the rule's, if it has none.
        name: match (name, binding.unit, rule) {
            ("", None, Some(rule)) => rule.id.to_string(),
            (name, ..) => name.to_owned(),
        },
        requests_per_unit: saturated(binding.quota),
        unit: binding.unit.map_or(WireUnit::Unknown, wire_unit).into(),
    }
}

const fn wire_unit(unit: Unit) -> WireUnit {
    match unit {
        Unit::Second => WireUnit::Second,
        Unit::Minute => WireUnit::Minute,
        Unit::Hour => WireUnit::Hour,
        Unit::Day => WireUnit::Day,
        Unit::Week => WireUnit::Week,
        Unit::Month => WireUnit::Month,
        Unit::Year => WireUnit::Year,
    }
}

/// The time until the window ends. envoyproxy/ratelimit always reports it, even for a counter that has
/// counted nothing and for an answer that was not counted.
fn window_end(binding: &Binding, clock: &Clock) -> Micros {
    let answered = &binding.answered;
    if answered.counted && !answered.full_after.is_zero() {
        return answered.full_after;
    }
    let window = binding.window.get().max(1);
    Micros::new(window - clock.now().as_micros() % window)
}

/// Converts a span to whole seconds, rounded up: a client that waits that long has waited long
/// enough.
fn whole_seconds(span: Micros) -> prost_types::Duration {
    let seconds = i64::try_from(span.as_secs_ceil()).unwrap_or(i64::MAX);
    prost_types::Duration { seconds, nanos: 0 }
}

fn saturated(count: u64) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}
