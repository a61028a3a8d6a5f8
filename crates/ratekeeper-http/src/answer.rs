//! What an HTTP client is told of its limits.
//!
//! A [`Standing`] is what there is to tell, whoever decided. [`Headers`] says in which headers, and a [`Refusal`] what
//! a request gets that may not pass, in the [`Form`] that its client reads.

mod denial;
mod draft;
mod form;
mod grpc;
mod headers;
mod refusal;
mod standing;

use http::HeaderName;
use ratekeeper_core::Timestamp;
use ratekeeper_limiter::{Decision, Policy};

pub use denial::{Denial, scope};
pub use form::{BodyForm, Form};
pub use headers::{HeaderLines, Headers, LimitHeaders, RetryAfter, UnknownHeaders};
pub use refusal::Refusal;
pub use standing::{Bound, Quota, Standing};

/// Marks an answer of which some limit was not counted.
pub const DEGRADED: HeaderName = HeaderName::from_static("x-ratelimit-degraded");

/// `RateLimit-Policy` and `RateLimit` of draft-ietf-httpapi-ratelimit-headers: all of the request's policies, and the
/// state of the binding one. Empty if no enforced limit matched.
pub fn draft(
    policies: &[Policy],
    decision: &Decision,
) -> impl Iterator<Item = (&'static str, String)> {
    let standing = Standing::new(policies, decision, Timestamp::default());
    let policy = draft::policy(&standing).map(|value| ("RateLimit-Policy", value));
    let state = draft::state(&standing).map(|value| ("RateLimit", value));
    policy.into_iter().chain(state)
}

#[cfg(test)]
mod tests;
