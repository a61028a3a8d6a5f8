//! One denied request, in words.

use http::HeaderMap;
use ratekeeper_core::{Timestamp, Verdict};
use ratekeeper_http::answer::Denial;
use ratekeeper_limiter::{Check, Decision};
use ratekeeper_rules::Rule;
use serde::Serialize;
use utoipa::ToSchema;

/// The most characters of a method or path.
const TEXT_MAX: usize = 256;

/// The request that a check is about, as far as its edge knows it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CheckOrigin<'a> {
    /// The protocol of the edge.
    pub(crate) protocol: &'static str,
    /// Headers or metadata of the call that asked.
    pub(crate) headers: Option<&'a HeaderMap>,
    /// Method and path of the limited request, the path without its query.
    pub(crate) method: Option<&'a str>,
    pub(crate) path: Option<&'a str>,
}

impl<'a> CheckOrigin<'a> {
    /// A call of which nothing is known but its headers.
    pub(crate) const fn new(protocol: &'static str, headers: Option<&'a HeaderMap>) -> Self {
        Self {
            protocol,
            headers,
            method: None,
            path: None,
        }
    }
}

/// A denied request.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, ToSchema)]
pub(crate) struct DeniedRequest {
    pub(crate) time: String,
    /// The caller's `x-request-id`, else one made here.
    pub(crate) request_id: String,
    pub(crate) protocol: &'static str,
    pub(crate) domain: String,
    /// The rule that denied; empty if the request brought its own limit.
    pub(crate) rule: String,
    /// The limit in words: `100 per 1m`.
    pub(crate) limit: String,
    /// The descriptor under the limit, secrets as fingerprints.
    pub(crate) scope: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) method: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) path: Option<String>,
    /// Absent if no wait helps.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) retry_after_ms: Option<u64>,
    /// True if a failure mode denied it, not a counter.
    pub(crate) degraded: bool,
    /// False if it passed all the same, since the gateway is in shadow mode.
    pub(crate) enforced: bool,
}

/// A request that a gateway denied.
#[derive(Clone, Copy, Debug)]
pub struct GatewayDenial<'a> {
    /// The limit that denies it.
    pub denial: &'a Denial,
    /// False in shadow mode, in which the request passes all the same.
    pub is_enforced: bool,
    /// The id that the gateway knows the request by; None to take it from the headers, or to make one.
    pub request_id: Option<&'a str>,
    /// The headers.
    pub headers: &'a HeaderMap,
    /// The method.
    pub method: &'a str,
    /// The path without its query.
    pub path: &'a str,
}

impl DeniedRequest {
    pub(super) fn of_check(
        decision: &Decision,
        check: &Check<'_>,
        origin: CheckOrigin<'_>,
        now: Timestamp,
        request_id: String,
    ) -> Self {
        let binding = decision.binding();
        let rule = binding.and_then(|binding| decision.rule(binding));
        let descriptor = decision
            .binding_descriptor()
            .and_then(|number| check.descriptors.get(number));
        let domain = descriptor.map_or(check.domain, |descriptor| {
            descriptor.domain_in(check.domain)
        });
        let scope = descriptor.map(|descriptor| {
            let scope = decision.snapshot().scope(domain, descriptor.entries);
            scope.into_text()
        });
        let wait = binding.filter(|binding| binding.answered.verdict == Verdict::Later);
        let micros = i64::try_from(now.as_micros()).unwrap_or(i64::MAX);
        let time = jiff::Timestamp::from_microsecond(micros);
        Self {
            time: time.unwrap_or(jiff::Timestamp::MAX).to_string(),
            request_id,
            protocol: origin.protocol,
            domain: cut(domain),
            rule: rule.map(|rule| rule.id.to_string()).unwrap_or_default(),
            limit: rule.map(Rule::quota_in_words).unwrap_or_default(),
            scope: cut(&scope.unwrap_or_default()),
            method: origin.method.map(cut),
            path: origin.path.map(cut),
            retry_after_ms: wait.map(|binding| binding.answered.retry_after.as_millis_ceil()),
            degraded: decision.is_degraded(),
            enforced: true,
        }
    }

    pub(super) fn at_gateway(denied: &GatewayDenial<'_>, request_id: String) -> Self {
        let denial = denied.denial;
        Self {
            time: jiff::Timestamp::now().to_string(),
            request_id,
            protocol: "gateway",
            domain: cut(denial.domain()),
            rule: denial.rule().to_owned(),
            limit: denial.quota().to_owned(),
            scope: cut(denial.scope().unwrap_or_default()),
            method: Some(cut(denied.method)),
            path: Some(cut(denied.path)),
            retry_after_ms: denial.retry_after().map(|wait| wait.as_millis_ceil()),
            degraded: denial.is_degraded(),
            enforced: denied.is_enforced,
        }
    }
}

fn cut(text: &str) -> String {
    text[..text.floor_char_boundary(TEXT_MAX)].to_owned()
}
