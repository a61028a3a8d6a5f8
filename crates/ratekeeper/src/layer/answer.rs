//! Headers and bodies of answers.

use std::fmt::Write;
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, RETRY_AFTER};
use http::request::Parts;
use http::{Response, StatusCode};

use crate::limit::notation;
use crate::{Checked, Limit};

const X_LIMIT: HeaderName = HeaderName::from_static("x-ratelimit-limit");
const X_REMAINING: HeaderName = HeaderName::from_static("x-ratelimit-remaining");
const X_RESET: HeaderName = HeaderName::from_static("x-ratelimit-reset");
const RATE_LIMIT: HeaderName = HeaderName::from_static("ratelimit");
const RATE_LIMIT_POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");
const GRPC_STATUS: HeaderName = HeaderName::from_static("grpc-status");
const GRPC_MESSAGE: HeaderName = HeaderName::from_static("grpc-message");

/// The code of gRPC for a denial.
const RESOURCE_EXHAUSTED: HeaderValue = HeaderValue::from_static("8");

/// The largest integer of a structured field.
const SF_INTEGER_MAX: u64 = 999_999_999_999_999;

/// The limits as clients are told them.
#[derive(Clone, Debug)]
pub(crate) struct Policies {
    /// Quoted, as structured fields write them.
    names: Box<[String]>,
    /// None if it would be no header, which names do not allow.
    line: Option<HeaderValue>,
}

impl Policies {
    pub(crate) fn of(limits: &[Limit]) -> Self {
        let names: Box<[String]> = limits.iter().map(|limit| quoted(&limit.name())).collect();
        let policy = |(limit, name): (&Limit, &String)| {
            let hits = limit.compile().map_or(limit.hits(), |made| made.ceiling());
            let window = whole_secs(limit.window()).max(1);
            format!("{name};q={};w={window}", hits.min(SF_INTEGER_MAX))
        };
        let line: Vec<String> = limits.iter().zip(&names).map(policy).collect();
        Self {
            line: HeaderValue::try_from(line.join(", ")).ok(),
            names,
        }
    }

    /// Adds the headers of what is left, in place of those of another layer.
    pub(crate) fn add_state(&self, checked: &Checked, headers: &mut HeaderMap) {
        let reset = whole_secs(checked.reset_after);
        headers.insert(X_LIMIT, checked.limit.into());
        headers.insert(X_REMAINING, checked.remaining.into());
        headers.insert(X_RESET, reset.into());
        let Some(name) = self.names.get(checked.index) else {
            return;
        };
        let state = format!(
            "{name};r={};t={reset}",
            checked.remaining.min(SF_INTEGER_MAX)
        );
        if let Ok(state) = HeaderValue::try_from(state) {
            headers.insert(RATE_LIMIT, state);
        }
    }

    /// Adds the policies, to those of other layers unless it is the first one.
    pub(crate) fn add_line(&self, is_first: bool, headers: &mut HeaderMap) {
        if let Some(line) = &self.line {
            match is_first {
                true => drop(headers.insert(RATE_LIMIT_POLICY, line.clone())),
                false => drop(headers.append(RATE_LIMIT_POLICY, line.clone())),
            }
        }
    }
}

/// Adds `Retry-After`, if waiting helps and the response has none.
pub(crate) fn add_retry(checked: &Checked, headers: &mut HeaderMap) {
    if let Some(wait) = checked.retry_after {
        headers
            .entry(RETRY_AFTER)
            .or_insert_with(|| whole_secs(wait).max(1).into());
    }
}

/// The response to a denied request.
pub(crate) fn default_denial(checked: &Checked, parts: &Parts) -> Response<Bytes> {
    let content = parts.headers.get(CONTENT_TYPE);
    let is_grpc = content.is_some_and(|kind| kind.as_bytes().starts_with(b"application/grpc"));
    let message = match checked.retry_after {
        Some(wait) => {
            let secs = Duration::from_secs(whole_secs(wait).max(1));
            format!("rate limit exceeded; retry after {}", notation(secs))
        }
        None => "the request costs more than its limit".to_owned(),
    };
    if is_grpc {
        return grpc_denial(content.cloned(), &message);
    }
    let mut body = format!(r#"{{"error":{{"code":"RATE_LIMITED","message":"{message}""#);
    if let Some(wait) = checked.retry_after {
        // Writing to a string does not fail.
        let _ = write!(body, r#","retry_after":{}"#, whole_secs(wait).max(1));
    }
    let _ = write!(body, r#","limit":{}}}}}"#, checked.limit);
    let mut response = Response::new(Bytes::from(body));
    *response.status_mut() = StatusCode::TOO_MANY_REQUESTS;
    let json = HeaderValue::from_static("application/json");
    response.headers_mut().insert(CONTENT_TYPE, json);
    response
}

/// A response of gRPC that has only headers.
fn grpc_denial(content: Option<HeaderValue>, message: &str) -> Response<Bytes> {
    let mut response = Response::new(Bytes::new());
    let headers = response.headers_mut();
    headers.insert(GRPC_STATUS, RESOURCE_EXHAUSTED);
    if let Ok(message) = HeaderValue::try_from(message) {
        headers.insert(GRPC_MESSAGE, message);
    }
    if let Some(content) = content {
        headers.insert(CONTENT_TYPE, content);
    }
    response
}

/// Whole seconds, rounded up, so that a client that waits this long has waited enough.
fn whole_secs(span: Duration) -> u64 {
    let part = u64::from(span.subsec_nanos() > 0);
    span.as_secs().saturating_add(part)
}

/// A text as a string of structured fields. Names are printable ASCII.
fn quoted(name: &str) -> String {
    let escaped = name.replace('\\', r"\\").replace('"', "\\\"");
    format!("\"{escaped}\"")
}
