//! The body of an error that the gateway's listener answers by itself.

use serde::Serialize;

/// `{"error": {"code", "message"}}`, as the gateway has it.
#[derive(Serialize)]
pub(crate) struct ErrorBody<'a> {
    error: Content<'a>,
}

#[derive(Serialize)]
struct Content<'a> {
    code: &'a str,
    message: &'a str,
}

impl<'a> ErrorBody<'a> {
    pub(crate) const fn new(code: &'a str, message: &'a str) -> Self {
        let error = Content { code, message };
        Self { error }
    }

    pub(crate) fn to_json(&self) -> String {
        // A few strings: nothing in there can fail.
        serde_json::to_string(self).unwrap_or_default()
    }
}
