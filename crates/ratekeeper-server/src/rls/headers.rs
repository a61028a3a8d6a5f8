//! Headers for the client, by way of Envoy.

use ratekeeper_core::{Micros, Verdict};
use ratekeeper_limiter::{Binding, Decision};
use ratekeeper_proto::envoy::config::core::v3::HeaderValue;
use ratekeeper_proto::envoy::service::ratelimit::v3::rate_limit_response::{
    Code as WireCode, DescriptorStatus,
};
use sfv::{Integer, KeyRef, ListSerializer, StringRef};

use crate::config::LimitHeaders;

/// The largest integer of a structured field (RFC 9651, section 3.3.1).
const INTEGER_MAX: u64 = 999_999_999_999_999;

/// The incumbent's three headers, from the status that it picks: the one with the least
/// remaining, the first of several; but the last one, if any, that is over its limit and
/// not in quota mode. None if no descriptor has a limit.
pub(super) fn incumbents(
    names: &LimitHeaders,
    decision: &Decision,
    statuses: &[DescriptorStatus],
) -> impl Iterator<Item = HeaderValue> {
    let limited = || {
        statuses
            .iter()
            .zip(decision.statuses())
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
    let values = picked.and_then(|(wire, _)| {
        let seconds = wire
            .duration_until_reset
            .as_ref()
            .map_or(0, |span| span.seconds);
        let limit = wire.current_limit.as_ref()?;
        Some([
            header(&names.limit, limit.requests_per_unit.to_string()),
            header(&names.remaining, wire.limit_remaining.to_string()),
            header(&names.reset, seconds.to_string()),
        ])
    });
    values.into_iter().flatten()
}

/// `RateLimit-Policy` and `RateLimit` of draft-ietf-httpapi-ratelimit-headers: all of the
/// request's policies, and the state of the binding one. Empty if no limit matched.
pub(super) fn draft(decision: &Decision) -> impl Iterator<Item = HeaderValue> {
    let policies = policies(decision).map(|value| header("RateLimit-Policy", value));
    let state = decision
        .binding()
        .map(|binding| header("RateLimit", state(decision, binding)));
    policies.into_iter().chain(state)
}

fn policies(decision: &Decision) -> Option<String> {
    let mut list = ListSerializer::new();
    let mut named: Vec<String> = Vec::new();
    for binding in decision
        .statuses()
        .iter()
        .filter_map(|status| status.binding.as_ref())
    {
        let name = policy_name(decision, binding);
        if named.contains(&name) {
            continue;
        }
        let mut policy = list.bare_item(string(&name));
        policy = policy.parameter(key("q"), integer(binding.quota));
        // A window is whole seconds there; any other is left out rather than bent.
        let micros = binding.window.get();
        if micros >= 1_000_000 && micros % 1_000_000 == 0 {
            let _ = policy.parameter(key("w"), integer(micros / 1_000_000));
        }
        named.push(name);
    }
    list.finish()
}

fn state(decision: &Decision, binding: &Binding) -> String {
    let answered = &binding.answered;
    let wait: Micros = match answered.verdict {
        Verdict::Later => answered.retry_after,
        Verdict::Fits | Verdict::Never => answered.reset_after,
    };
    let remaining = if answered.fits() {
        answered.remaining
    } else {
        0
    };
    let mut list = ListSerializer::new();
    let _ = list
        .bare_item(string(&policy_name(decision, binding)))
        .parameter(key("r"), integer(remaining))
        .parameter(key("t"), integer(wait.as_secs_ceil()));
    list.finish().unwrap_or_default()
}

/// The rule's name, else its id, in the characters that a structured field may hold.
fn policy_name(decision: &Decision, binding: &Binding) -> String {
    let rule = decision.rule(binding);
    let name = rule.map_or("override", |rule| rule.name.as_deref().unwrap_or(&rule.id));
    let mut shown = String::with_capacity(name.len());
    for byte in name.bytes() {
        match byte {
            b' '..=b'~' => shown.push(char::from(byte)),
            // Percent-encoded, so that two names stay two.
            _ => shown.push_str(&format!("%{byte:02X}")),
        }
    }
    shown
}

fn header(name: &str, value: String) -> HeaderValue {
    HeaderValue {
        key: name.to_owned(),
        value,
        raw_value: Vec::new(),
    }
}

fn integer(value: u64) -> Integer {
    let value = i64::try_from(value.min(INTEGER_MAX)).unwrap_or(i64::MAX);
    Integer::try_from(value).unwrap_or(Integer::MAX)
}

/// [`policy_name`] lets only printable ASCII through, which is all that a string may hold.
fn string(text: &str) -> &StringRef {
    StringRef::from_str(text).unwrap_or_else(|_| StringRef::constant(""))
}

fn key(name: &'static str) -> &'static KeyRef {
    KeyRef::constant(name)
}
