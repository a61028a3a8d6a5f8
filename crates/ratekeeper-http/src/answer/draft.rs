//! The headers of draft-ietf-httpapi-ratelimit-headers, as structured fields (RFC 9651).

use super::RequestStatus;
use super::written::{INTEGER_MAX, with_written};

/// Appends the value of `RateLimit-Policy` to `text`: all of the request's policies. Nothing if there are none.
pub(super) fn policy(limits: &RequestStatus<'_>, text: &mut String) {
    for (number, quota) in limits.quotas.iter().enumerate() {
        if number > 0 {
            text.push_str(", ");
        }
        with_written(quota, |written| text.push_str(&written.member));
    }
}

/// Appends the value of `RateLimit` to `text`: the state of the binding policy, if it is among the request's.
pub(super) fn state(limits: &RequestStatus<'_>, text: &mut String) {
    let Some(binding) = &limits.binding else {
        return;
    };
    if limits.quotas.contains(&binding.quota) {
        with_written(&binding.quota, |written| text.push_str(&written.name));
        parameter(text, ";r=", binding.remaining());
        parameter(text, ";t=", binding.status.reset_after.as_secs_ceil());
    }
}

/// Appends an integer parameter, which changes with each answer; the rest of the policy is cached.
fn parameter(text: &mut String, name: &str, value: u64) {
    text.push_str(name);
    text.push_str(itoa::Buffer::new().format(value.min(INTEGER_MAX)));
}
