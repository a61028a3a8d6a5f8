//! A denied request, and the body of its answer.

use http::{Extensions, HeaderMap, Method, Request, Uri};
use ratekeeper_core::Micros;
use ratekeeper_core::duration::format_duration;
use ratekeeper_limiter::{Decision, RequestDescriptors, Scope};
use serde::Serialize;

use super::{Bound, RequestStatus};

/// A denial: the caller is over a limit. Clients get its [body](Self::body); the rest is for operators.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Denial {
    /// The state of the request's limits.
    pub status: RequestStatus<'static>,
    /// The domain of the rule that denies.
    pub domain: String,
    /// The limit in words: `100 per 1m`; empty where it is not known.
    pub limit: String,
    /// The entry that names the tenant, or the first one: `api_key:~1f0c83aa5b92d07e`; empty where it is not known.
    pub subject: String,
}

/// The body of a denied request's answer.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct DenialBody<'a> {
    error: DenialError<'a>,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
struct DenialError<'a> {
    code: &'static str,
    message: String,
    /// Seconds; null if no wait helps.
    retry_after: Option<u64>,
    limit: Option<u64>,
    window: Option<String>,
    scope: Option<&'a str>,
}

impl Denial {
    /// A denial of a request in `domain`.
    #[must_use]
    pub fn new(status: RequestStatus<'_>, domain: &str) -> Self {
        let status = status.into_owned();
        let quota = status.binding.as_ref().map(|binding| &binding.quota);
        Self {
            domain: domain.to_owned(),
            limit: quota.map(super::Quota::in_words).unwrap_or_default(),
            status,
            subject: String::new(),
        }
    }

    /// Adds the domain of the rule by which `decision` denies, and its limit as its file has it.
    #[must_use]
    pub fn by(self, decision: &Decision) -> Self {
        let binding = decision.binding();
        match binding.and_then(|binding| decision.rule(binding)) {
            None => self,
            Some(rule) => Self {
                domain: (*rule.domain).to_owned(),
                limit: rule.quota_in_words(),
                ..self
            },
        }
    }

    /// Adds the one who is denied, by the `scope` of the descriptor under the limit.
    #[must_use]
    pub fn of(self, scope: &Scope) -> Self {
        Self {
            subject: scope.subject().to_owned(),
            ..self
        }
    }

    /// The body for the client.
    #[must_use]
    pub fn body(&self) -> DenialBody<'_> {
        let quota = self.binding().map(|binding| &binding.quota);
        DenialBody {
            error: DenialError {
                code: "RATE_LIMITED",
                message: self.message(),
                retry_after: self.retry_after_secs(),
                limit: quota.map(|quota| quota.limit),
                window: quota.and_then(|quota| quota.window).map(format_duration),
                scope: self.status.scope.as_deref(),
            },
        }
    }

    /// The message for people.
    #[must_use]
    pub fn message(&self) -> String {
        match self.retry_after_secs() {
            Some(1) => "Rate limit exceeded. Retry after 1 second.".to_owned(),
            Some(seconds) => format!("Rate limit exceeded. Retry after {seconds} seconds."),
            None => {
                "Rate limit exceeded: this request costs more than the limit allows.".to_owned()
            }
        }
    }

    /// The id of the rule that denies; empty where none is known.
    #[must_use]
    pub fn rule(&self) -> &str {
        self.binding()
            .map_or("", |binding| binding.status.rule_id())
    }

    /// The name of the violated policy, as in the `RateLimit-Policy` header.
    pub(super) fn violated(&self) -> Option<&str> {
        self.binding().map(|binding| &*binding.quota.name)
    }

    /// Time until the same request would pass; None if no wait helps.
    #[must_use]
    pub fn retry_after(&self) -> Option<Micros> {
        self.binding()?.status.retry_after
    }

    /// Whole seconds to wait; None if no wait helps.
    #[must_use]
    pub fn retry_after_secs(&self) -> Option<u64> {
        self.binding()?.retry_after_secs()
    }

    const fn binding(&self) -> Option<&Bound<'static>> {
        self.status.binding.as_ref()
    }
}

/// An HTTP request that was denied, for those who tell operators of it.
#[derive(Clone, Copy, Debug)]
pub struct HttpDenial<'a> {
    /// The limit that denies it.
    pub denial: &'a Denial,
    /// False in shadow mode, in which the request passes all the same.
    pub is_enforced: bool,
    /// The method.
    pub method: &'a Method,
    /// The target.
    pub uri: &'a Uri,
    /// The headers.
    pub headers: &'a HeaderMap,
    /// The extensions, with anything that services outside the layer added.
    pub extensions: &'a Extensions,
}

impl<'a> HttpDenial<'a> {
    /// The denial of `request`.
    #[must_use]
    pub fn new<B>(denial: &'a Denial, is_enforced: bool, request: &'a Request<B>) -> Self {
        Self {
            denial,
            is_enforced,
            method: request.method(),
            uri: request.uri(),
            headers: request.headers(),
            extensions: request.extensions(),
        }
    }
}

/// The entries whose limit denies: `api_key:~1f0c83aa5b92d07e:endpoint:POST /orders`.
#[must_use]
pub fn scope(decision: &Decision, descriptors: RequestDescriptors<'_>) -> Option<String> {
    denied_scope(decision, descriptors).map(Scope::into_text)
}

/// The same, with the one who is denied.
#[must_use]
pub fn denied_scope(decision: &Decision, mut descriptors: RequestDescriptors<'_>) -> Option<Scope> {
    let descriptor = descriptors.nth(decision.binding_descriptor()?)?;
    let snapshot = decision.snapshot();
    Some(snapshot.scope(descriptor.domain, descriptor.entries))
}
