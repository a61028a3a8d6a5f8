//! The body of a denied request's answer.

use ratekeeper_core::Micros;
use ratekeeper_limiter::{Decision, Descriptor, Snapshot};
use ratekeeper_rules::Rule;
use ratekeeper_rules::window::format_duration;
use serde::Serialize;

use super::LimitStatus;

/// A denial: the caller is over a limit. Serialized to JSON, it is the body of the answer:
/// `{"error": {"code", "message", "retry_after", "limit", "window", "scope"}}`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Denial {
    error: Content,
    /// The names of the violated policies, as in the `RateLimit-Policy` header.
    #[serde(skip)]
    pub(super) violated: Vec<String>,
    #[serde(skip)]
    rule: String,
    #[serde(skip)]
    domain: String,
    #[serde(skip)]
    quota: String,
    #[serde(skip)]
    retry_after: Option<Micros>,
    #[serde(skip)]
    degraded: bool,
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
    /// Builds the denial for `standing`. `scope` names the callers under the limit, without secrets.
    #[must_use]
    pub fn of(standing: &LimitStatus<'_>, scope: Option<String>) -> Self {
        let binding = standing.binding.as_ref();
        let retry_after = binding.and_then(super::Bound::retry_after_secs);
        let message = match retry_after {
            Some(1) => "Rate limit exceeded. Retry after 1 second.".to_owned(),
            Some(seconds) => format!("Rate limit exceeded. Retry after {seconds} seconds."),
            None => "Rate limit exceeded: the limit has no room for this request at any time."
                .to_owned(),
        };
        let window = binding.and_then(|binding| binding.quota.window);
        Self {
            error: Content {
                code: "RATE_LIMITED",
                message,
                retry_after,
                limit: binding.map(|binding| binding.quota.limit),
                window: window.map(format_duration),
                scope,
            },
            violated: binding
                .map(|binding| binding.quota.name.clone().into_owned())
                .into_iter()
                .collect(),
            rule: binding.map_or_else(String::new, |binding| binding.rule.clone().into_owned()),
            domain: String::new(),
            quota: binding.map_or_else(String::new, |binding| binding.quota.in_words()),
            retry_after: binding.and_then(|binding| binding.retry_after),
            degraded: standing.degraded,
        }
    }

    /// Adds the domain, for operators.
    #[must_use]
    pub fn in_domain(mut self, domain: &str) -> Self {
        domain.clone_into(&mut self.domain);
        self
    }

    /// Adds what operators are told about the rule that denies: its domain, and its quota as its file has it.
    #[must_use]
    pub fn by(mut self, rule: &Rule) -> Self {
        self.quota = rule.quota_in_words();
        self.in_domain(&rule.domain)
    }

    /// The domain of the rule that denies; empty where it is not known.
    #[must_use]
    pub fn domain(&self) -> &str {
        &self.domain
    }

    /// The quota in words: `100 per 1m`; empty where it is not known.
    #[must_use]
    pub fn quota(&self) -> &str {
        &self.quota
    }

    /// Time until the same request would pass; None if no wait helps.
    #[must_use]
    pub const fn retry_after(&self) -> Option<Micros> {
        self.retry_after
    }

    /// True if a limit was answered by a failure mode.
    #[must_use]
    pub const fn is_degraded(&self) -> bool {
        self.degraded
    }

    /// The id of the rule that denies; empty where none is known.
    #[must_use]
    pub fn rule(&self) -> &str {
        &self.rule
    }

    /// The descriptor that the limit applies to, without secrets.
    #[must_use]
    pub fn scope(&self) -> Option<&str> {
        self.error.scope.as_deref()
    }

    /// Whole seconds to wait; None if no wait helps.
    #[must_use]
    pub fn retry_after_secs(&self) -> Option<u64> {
        self.error.retry_after
    }

    /// The message for people.
    #[must_use]
    pub fn message(&self) -> &str {
        &self.error.message
    }
}

/// The entries whose limit denies: `api_key:~1f0c83aa5b92d07e:endpoint:POST /orders`.
#[must_use]
pub fn scope(decision: &Decision, domain: &str, descriptors: &[Descriptor<'_>]) -> Option<String> {
    let descriptor = descriptors.get(decision.binding_descriptor()?)?;
    Some(shown(decision.snapshot(), domain, descriptor))
}

/// The entries of `descriptor` in a check of `domain`, without secrets: `api_key:~1f0c83aa5b92d07e`.
#[must_use]
pub fn shown(snapshot: &Snapshot, domain: &str, descriptor: &Descriptor<'_>) -> String {
    let scope = snapshot.scope(descriptor.domain_in(domain), descriptor.entries);
    scope.into_text()
}
