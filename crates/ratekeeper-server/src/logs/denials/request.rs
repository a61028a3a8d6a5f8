//! One denied request, in words.

use http::HeaderMap;
use ratekeeper_core::Timestamp;
use ratekeeper_http::answer::{Denial, HttpDenial, RequestStatus, denied_scope};
use ratekeeper_limiter::{Decision, RequestDescriptors};

use crate::admin_json::DeniedRequest;
use crate::admin_json::keys::shown;

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

impl DeniedRequest {
    /// Writes it to the log of `node`, before which so many others were `left_out`.
    pub(super) fn log(&self, node: &str, left_out: u64) {
        let Self {
            // The line has one of its own.
            time: _,
            request_id,
            protocol,
            domain,
            // `tenant` and `scope` say it.
            key: _,
            tenant,
            rule,
            limit,
            scope,
            method,
            path,
            retry_after_ms,
            degraded,
            enforced,
        } = self;
        tracing::info!(
            request_id,
            protocol,
            domain,
            tenant,
            rule,
            limit,
            scope,
            method,
            path,
            retry_after_ms,
            degraded,
            enforced,
            node,
            left_out,
            "request over its limit"
        );
    }

    pub(super) fn of_check(
        decision: &Decision,
        descriptors: RequestDescriptors<'_>,
        origin: CheckOrigin<'_>,
        now: Timestamp,
        request_id: String,
    ) -> Self {
        let number = decision.binding_descriptor();
        let descriptor = number.and_then(|number| { descriptors }.nth(number));
        let domain = descriptor.map_or(descriptors.domain, |descriptor| descriptor.domain);
        let limits = RequestStatus::of(&[], decision, descriptors, now);
        let denial = Denial::new(limits, domain).by(decision);
        let denial = match denied_scope(decision, descriptors) {
            Some(scope) => denial.of(&scope),
            None => denial,
        };
        Self::new(&denial, origin, request_id)
    }

    pub(super) fn at_gateway(denied: &HttpDenial<'_>, request_id: String) -> Self {
        let origin = CheckOrigin {
            method: Some(denied.method.as_str()),
            path: Some(denied.uri.path()),
            ..CheckOrigin::new("gateway", None)
        };
        Self {
            enforced: denied.is_enforced,
            ..Self::new(denied.denial, origin, request_id)
        }
    }

    fn new(denial: &Denial, origin: CheckOrigin<'_>, request_id: String) -> Self {
        let limits = &denial.status;
        let micros = i64::try_from(limits.at.as_micros()).unwrap_or(i64::MAX);
        let time = jiff::Timestamp::from_microsecond(micros);
        let scope = limits.scope.as_deref().unwrap_or_default();
        let key = match denial.subject.as_str() {
            // A central service decides, and tells the descriptor alone.
            "" => scope,
            subject => subject,
        };
        Self {
            key: cut(key),
            tenant: cut(shown(key)),
            time: time.unwrap_or(jiff::Timestamp::MAX).to_string(),
            request_id,
            protocol: origin.protocol.to_owned(),
            domain: cut(&denial.domain),
            rule: denial.rule().to_owned(),
            limit: denial.limit.clone(),
            scope: cut(scope),
            method: origin.method.map(cut),
            path: origin.path.map(cut),
            retry_after_ms: denial.retry_after().map(|wait| wait.as_millis_ceil()),
            degraded: limits.degraded,
            enforced: true,
        }
    }
}

fn cut(text: &str) -> String {
    text[..text.floor_char_boundary(TEXT_MAX)].to_owned()
}
