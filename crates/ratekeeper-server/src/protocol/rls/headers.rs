//! envoyproxy/ratelimit's headers for the client, by way of Envoy.

use ratekeeper_limiter::Decision;
use ratekeeper_proto::envoy::config::core::v3::HeaderValue;
use ratekeeper_proto::envoy::service::ratelimit::v3::rate_limit_response::{
    Code as WireCode, DescriptorStatus,
};

use crate::config::LimitHeaderNames;

/// envoyproxy/ratelimit's three headers, from the status that it picks: the one with the least
/// remaining, the first of several; but the last one, if any, that is over its limit and
/// not in quota mode. None if no descriptor has a limit.
pub(super) fn envoyproxy_ratelimit(
    names: &LimitHeaderNames,
    decision: &Decision,
    statuses: &[DescriptorStatus],
) -> impl Iterator<Item = HeaderValue> {
    let limited = || {
        statuses
            .iter()
            .zip(decision.answers())
            .filter(|(s, _)| s.current_limit.is_some())
    };
    let all_in_quota_mode = decision.snapshot().modes().quota;
    let mut denying = limited().filter(|(wire, status)| {
        let binding = status.binding.as_ref();
        let rule = binding.and_then(|binding| decision.rule(binding));
        let in_quota_mode = all_in_quota_mode || rule.is_some_and(|rule| rule.quota_mode);
        wire.code == i32::from(WireCode::OverLimit) && !in_quota_mode
    });
    let picked = denying
        .next_back()
        .or_else(|| limited().min_by_key(|(wire, _)| wire.limit_remaining));
    let values = picked.and_then(|(wire, status)| {
        let seconds = wire
            .duration_until_reset
            .as_ref()
            .map_or(0, |span| span.seconds);
        // Not that of `current_limit`, which may be less than a bucket's burst.
        let limit = status.binding.as_ref()?.ceiling;
        Some([
            header(&names.limit, limit.min(u32::MAX.into()).to_string()),
            header(&names.remaining, wire.limit_remaining.to_string()),
            header(&names.reset, seconds.to_string()),
        ])
    });
    values.into_iter().flatten()
}

/// The value that says some limit was answered without being counted.
pub(super) fn degraded() -> HeaderValue {
    header("x-ratelimit-degraded", "true".to_owned())
}

pub(super) fn header(name: &str, value: String) -> HeaderValue {
    HeaderValue {
        key: name.to_owned(),
        value,
        raw_value: Vec::new(),
    }
}
