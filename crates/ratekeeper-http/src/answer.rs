//! Reports limits to HTTP clients.
//!
//! A [`RequestStatus`] is the state to report. [`Headers`] selects the headers, and a [`Refusal`] is the
//! response to a request that may not pass, in the [`Form`] that its client reads.

mod denial;
mod draft;
mod form;
mod grpc;
mod headers;
mod lines;
mod refusal;
mod status;
mod written;

use http::HeaderName;
use ratekeeper_core::Timestamp;
use ratekeeper_limiter::{Decision, Policy};

pub use denial::{Denial, DenialBody, HttpDenial, denied_scope, scope};
pub use form::{BodyForm, Form};
pub use headers::{Headers, LimitHeaders, RetryAfter, UnknownHeaders};
pub use lines::HeaderLines;
pub use refusal::Refusal;
pub use status::{Bound, Quota, RequestStatus};

/// Marks a response if a limit was not counted.
pub const DEGRADED: HeaderName = HeaderName::from_static("x-ratelimit-degraded");

/// `RateLimit-Policy` and `RateLimit` of draft-ietf-httpapi-ratelimit-headers: all of the request's
/// policies, and the state of the most restrictive one. Empty if no enforced limit matched.
pub fn draft(
    policies: &[Policy],
    decision: &Decision,
) -> impl Iterator<Item = (&'static str, String)> {
    let limits = RequestStatus::new(policies, decision, Timestamp::default());
    let written = |write: fn(&RequestStatus<'_>, &mut String)| {
        let mut text = String::new();
        write(&limits, &mut text);
        text
    };
    let headers = [
        ("RateLimit-Policy", written(draft::policy)),
        ("RateLimit", written(draft::state)),
    ];
    headers.into_iter().filter(|(_, value)| !value.is_empty())
}

#[cfg(test)]
mod tests;
