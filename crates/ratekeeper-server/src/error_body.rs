//! The body of every error over HTTP.

use serde::Serialize;
use utoipa::ToSchema;

/// `{"error": {"code", "message", "field"}}`.
#[derive(Serialize, ToSchema)]
#[schema(as = Error)]
pub(crate) struct ErrorBody<'a> {
    error: Content<'a>,
}

#[derive(Serialize, ToSchema)]
#[schema(as = ErrorContent)]
struct Content<'a> {
    code: &'a str,
    message: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    field: &'a str,
}

impl<'a> ErrorBody<'a> {
    /// `field` is the path of the wrong field in the request's body; empty if the fault is not there.
    pub(crate) const fn new(code: &'a str, message: &'a str, field: &'a str) -> Self {
        Self {
            error: Content {
                code,
                message,
                field,
            },
        }
    }

    pub(crate) fn to_json(&self) -> String {
        // A few strings: nothing in there can fail.
        serde_json::to_string(self).unwrap_or_default()
    }
}
