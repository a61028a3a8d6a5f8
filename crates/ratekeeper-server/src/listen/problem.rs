//! The body of every error over HTTP: a problem (RFC 9457) with a code for programs.

use serde::Serialize;
use serde_json::Value;
use utoipa::ToSchema;

use http::StatusCode;

/// The media type of a problem.
pub(crate) const PROBLEM_JSON: &str = "application/problem+json";

/// The body of an error.
#[derive(Serialize, ToSchema)]
pub(crate) struct Problem<'a> {
    /// Always `about:blank`: the status and the code say it all.
    r#type: &'static str,
    title: &'a str,
    status: u16,
    detail: &'a str,
    /// The error for programs, such as `INVALID_ARGUMENT`.
    code: &'a str,
    /// The path of the wrong field in the body, or the wrong parameter with a `?`; absent if the fault is
    /// elsewhere.
    #[serde(skip_serializing_if = "str::is_empty")]
    field: &'a str,
}

impl<'a> Problem<'a> {
    /// `field` is the path of the wrong field or parameter; empty if the fault is elsewhere.
    pub(crate) fn new(status: StatusCode, code: &'a str, detail: &'a str, field: &'a str) -> Self {
        Self {
            r#type: "about:blank",
            title: status.canonical_reason().unwrap_or("Error"),
            status: status.as_u16(),
            detail,
            code,
            field,
        }
    }

    /// The problem with one more member, as RFC 9457 allows.
    pub(crate) fn to_json_with(&self, name: &str, member: &Value) -> String {
        let mut problem = serde_json::to_value(self).unwrap_or_default();
        problem[name] = member.clone();
        problem.to_string()
    }

    pub(crate) fn to_json(&self) -> String {
        // A few strings: nothing in there can fail.
        serde_json::to_string(self).unwrap_or_default()
    }
}
