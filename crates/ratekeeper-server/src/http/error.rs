//! Refusals over HTTP, all in one form.

use axum::Json;
use axum::extract::rejection::BytesRejection;
use axum::response::{IntoResponse, Response};
use http::{Method, StatusCode, Uri};
use serde::Serialize;

/// A refusal: `{"error": {"code", "message", "field"}}`.
#[derive(Debug)]
pub(crate) struct ApiError {
    status: StatusCode,
    code: &'static str,
    message: String,
    /// The path of what is wrong in the body; empty if it is nothing in there.
    field: String,
}

#[derive(Serialize)]
struct Body<'a> {
    error: Content<'a>,
}

#[derive(Serialize)]
struct Content<'a> {
    code: &'a str,
    message: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    field: &'a str,
}

impl ApiError {
    pub(crate) fn invalid(field: impl Into<String>, message: impl Into<String>) -> Self {
        Self {
            status: StatusCode::BAD_REQUEST,
            code: "INVALID_ARGUMENT",
            message: message.into(),
            field: field.into(),
        }
    }

    pub(crate) fn other(
        status: StatusCode,
        code: &'static str,
        message: impl Into<String>,
    ) -> Self {
        Self {
            status,
            code,
            message: message.into(),
            field: String::new(),
        }
    }

    pub(crate) fn not_json() -> Self {
        let message = "send the body as Content-Type: application/json";
        Self::other(
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            "UNSUPPORTED_MEDIA_TYPE",
            message,
        )
    }

    pub(crate) fn no_rules() -> Self {
        let message = "no rules are loaded; see /readyz";
        Self::other(StatusCode::SERVICE_UNAVAILABLE, "UNAVAILABLE", message)
    }
}

impl From<BytesRejection> for ApiError {
    fn from(rejection: BytesRejection) -> Self {
        let status = rejection.status();
        if status == StatusCode::PAYLOAD_TOO_LARGE {
            return Self::other(status, "TOO_LARGE", "the body is too large");
        }
        Self::invalid("", rejection.body_text())
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let error = Content {
            code: self.code,
            message: &self.message,
            field: &self.field,
        };
        (self.status, Json(Body { error })).into_response()
    }
}

pub(crate) async fn not_found(uri: Uri) -> ApiError {
    let message = format!("there is nothing at {}", uri.path());
    ApiError::other(StatusCode::NOT_FOUND, "NOT_FOUND", message)
}

pub(crate) async fn method_not_allowed(method: Method, uri: Uri) -> ApiError {
    let message = format!("{method} is not answered at {}", uri.path());
    ApiError::other(
        StatusCode::METHOD_NOT_ALLOWED,
        "METHOD_NOT_ALLOWED",
        message,
    )
}
