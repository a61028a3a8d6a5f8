//! What an HTTP client is told of its limits.

mod draft;

use http::header::RETRY_AFTER;
use http::{HeaderMap, HeaderName, HeaderValue};
use ratekeeper_core::{Micros, Verdict};
use ratekeeper_limiter::{Decision, Descriptor, Policy};
use ratekeeper_rules::secret::{fingerprint, is_secret_by_default};
use ratekeeper_rules::window::format_duration;
use serde::Serialize;

pub use draft::headers as draft;

/// Marks an answer of which some limit was not counted.
pub const DEGRADED: HeaderName = HeaderName::from_static("x-ratelimit-degraded");

const LIMIT: HeaderName = HeaderName::from_static("x-ratelimit-limit");
const REMAINING: HeaderName = HeaderName::from_static("x-ratelimit-remaining");
const RESET: HeaderName = HeaderName::from_static("x-ratelimit-reset");

/// The state of a request's most restrictive limit. Spans are whole seconds, rounded up.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LimitState {
    /// Hits a window holds.
    pub limit: u64,
    /// Hits left; 0 after a denial.
    pub remaining: u64,
    /// Until the window ends or the bucket is full; after a denial the same as `retry_after_secs`.
    pub reset_secs: u64,
    /// After a denial: when the same request would pass, at least 1. None if no wait helps, or none is needed.
    pub retry_after_secs: Option<u64>,
}

impl LimitState {
    /// The state that `decision` tells; None if no enforced limit matched.
    #[must_use]
    pub fn of(decision: &Decision) -> Option<Self> {
        let binding = decision.binding()?;
        let answered = &binding.answered;
        let is_later = answered.verdict == Verdict::Later;
        Some(Self {
            limit: binding.quota,
            remaining: if answered.fits() {
                answered.remaining
            } else {
                0
            },
            reset_secs: until_reset(decision).as_secs_ceil(),
            retry_after_secs: (!decision.allowed() && is_later)
                .then(|| answered.retry_after.as_secs_ceil().max(1)),
        })
    }
}

/// On a denial every word about time says when to come back, so that clients may go by any.
fn until_reset(decision: &Decision) -> Micros {
    match decision.binding().map(|binding| binding.answered) {
        Some(answered) if answered.verdict == Verdict::Later => answered.retry_after,
        Some(answered) => answered.reset_after,
        None => Micros::ZERO,
    }
}

/// The headers of an answer: `X-RateLimit-Limit`, `-Remaining` and `-Reset` (seconds from now), `RateLimit-Policy` and
/// `RateLimit`, `Retry-After` after a denial that a wait ends, and [`DEGRADED`] where it applies. None of them where no
/// enforced limit matched.
#[must_use]
pub fn headers(policies: &[Policy], decision: &Decision) -> HeaderMap {
    let mut headers = HeaderMap::new();
    if let Some(state) = LimitState::of(decision) {
        headers.insert(LIMIT, state.limit.into());
        headers.insert(REMAINING, state.remaining.into());
        headers.insert(RESET, state.reset_secs.into());
        if let Some(seconds) = state.retry_after_secs {
            headers.insert(RETRY_AFTER, seconds.into());
        }
    }
    for (name, value) in draft(policies, decision) {
        let name = HeaderName::from_bytes(name.as_bytes());
        // Structured fields are printable ASCII.
        if let (Ok(name), Ok(value)) = (name, HeaderValue::try_from(value)) {
            headers.insert(name, value);
        }
    }
    if decision.is_degraded() {
        headers.insert(DEGRADED, HeaderValue::from_static("true"));
    }
    headers
}

/// The body of a denial: `{"error": {"code", "message", "retry_after", "limit", "window", "scope"}}`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Denial {
    error: Content,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
struct Content {
    code: &'static str,
    message: String,
    /// Seconds; null if no wait helps.
    retry_after: Option<u64>,
    limit: Option<u64>,
    window: Option<String>,
    scope: Option<String>,
}

impl Denial {
    /// What `decision` says to a request of `descriptors` in `domain`. Values of secret entries are fingerprints.
    #[must_use]
    pub fn new(decision: &Decision, domain: &str, descriptors: &[Descriptor<'_>]) -> Self {
        let state = LimitState::of(decision);
        let retry_after = state.and_then(|state| state.retry_after_secs);
        let message = match retry_after {
            Some(1) => "Rate limit exceeded. Retry after 1 second.".to_owned(),
            Some(seconds) => format!("Rate limit exceeded. Retry after {seconds} seconds."),
            None => "Rate limit exceeded: the limit has no room for this request at any time."
                .to_owned(),
        };
        let binding = decision.binding();
        let window = binding.map(|binding| format_duration(binding.window));
        Self {
            error: Content {
                code: "RATE_LIMITED",
                message,
                retry_after,
                limit: state.map(|state| state.limit),
                window,
                scope: scope(decision, domain, descriptors),
            },
        }
    }
}

/// The entries whose limit denies: `api_key:~1f0c83aa:endpoint:POST /orders`.
fn scope(decision: &Decision, domain: &str, descriptors: &[Descriptor<'_>]) -> Option<String> {
    let binding = decision.binding()?;
    let is_binding = |status: &ratekeeper_limiter::Status| {
        status
            .binding
            .as_ref()
            .is_some_and(|other| std::ptr::eq(other, binding))
    };
    let number = decision.statuses().iter().position(is_binding)?;
    let rules = decision.snapshot().rules().domain(domain);
    let is_secret =
        |key: &str| rules.map_or_else(|| is_secret_by_default(key), |rules| rules.is_secret(key));
    let entries = descriptors.get(number)?.entries.iter();
    let shown = entries.map(|entry| {
        if is_secret(entry.key) {
            format!("{}:{}", entry.key, fingerprint(entry.value))
        } else {
            format!("{}:{}", entry.key, entry.value)
        }
    });
    Some(shown.collect::<Vec<_>>().join(":"))
}

#[cfg(test)]
mod tests;
