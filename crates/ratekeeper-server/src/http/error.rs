//! Refusals over HTTP, all in one form.

use std::time::Duration;

use axum::body::Body;
use axum::extract::rejection::BytesRejection;
use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use http::header::{CONNECTION, CONTENT_TYPE, HeaderValue, RETRY_AFTER, WWW_AUTHENTICATE};
use http::{Method, StatusCode, Uri};
use hyper::body::Body as _;
use ratekeeper_proto::SHORT_BYTES_MAX;
use serde_json::Value;

use crate::access::AccessRefused;
use crate::access::guesses::REFILL;
use crate::listen::problem::{PROBLEM_JSON, Problem};
use crate::listen::reading::{NoReadingRoom, ReadingRoom};
use crate::protocol::v1::{Reason, Refusal};

/// A refusal, whose body is a [`Problem`].
#[derive(Clone, Debug)]
pub(crate) struct ApiError {
    status: StatusCode,
    code: &'static str,
    message: String,
    /// The path of the wrong field in the body; empty if the fault is not in the body.
    field: String,
    /// The challenge that names the ways to authenticate, if a bearer token is not the only one.
    challenge: Option<Box<HeaderValue>>,
    /// The seconds after which a repetition makes sense.
    retry_after: Option<u32>,
    /// One more member of the body, with its name.
    member: Option<Box<(&'static str, Value)>>,
}

impl ApiError {
    pub(crate) fn invalid(field: impl Into<String>, message: impl Into<String>) -> Self {
        Self {
            status: StatusCode::BAD_REQUEST,
            code: "INVALID_ARGUMENT",
            message: message.into(),
            field: field.into(),
            challenge: None,
            retry_after: None,
            member: None,
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
            challenge: None,
            retry_after: None,
            member: None,
        }
    }

    pub(crate) fn with_retry_after(self, wait: Duration) -> Self {
        Self {
            retry_after: u32::try_from(wait.as_millis().div_ceil(1_000)).ok(),
            ..self
        }
    }

    /// The same with one more member in the body.
    pub(crate) fn with_member(self, name: &'static str, value: Value) -> Self {
        Self {
            member: Some(Box::new((name, value))),
            ..self
        }
    }

    /// The same about another field, if it is about `field`.
    pub(crate) fn about(self, field: &str, other: &str) -> Self {
        match self.field == field {
            true => Self {
                field: other.to_owned(),
                ..self
            },
            false => self,
        }
    }

    pub(crate) const fn status(&self) -> StatusCode {
        self.status
    }

    pub(crate) const fn code(&self) -> &'static str {
        self.code
    }

    pub(crate) fn message(&self) -> &str {
        &self.message
    }

    /// Refuses a sender that is not authenticated, with the ways to authenticate.
    pub(super) fn challenged(message: &str, challenge: HeaderValue) -> Self {
        Self {
            challenge: Some(Box::new(challenge)),
            ..Self::other(StatusCode::UNAUTHORIZED, "UNAUTHENTICATED", message)
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

    fn too_large() -> Self {
        let status = StatusCode::PAYLOAD_TOO_LARGE;
        Self::other(status, "TOO_LARGE", "the body is too large")
    }

    pub(crate) fn no_rules() -> Self {
        Self::unavailable("no rules are loaded; see /readyz")
    }

    pub(crate) fn unavailable(message: impl Into<String>) -> Self {
        Self::other(StatusCode::SERVICE_UNAVAILABLE, "UNAVAILABLE", message)
    }
}

impl From<AccessRefused> for ApiError {
    fn from(refused: AccessRefused) -> Self {
        let message = refused.to_string();
        match refused {
            AccessRefused::NotBearer | AccessRefused::WrongToken(_) | AccessRefused::Unproven => {
                Self::other(StatusCode::UNAUTHORIZED, "UNAUTHENTICATED", message)
            }
            AccessRefused::Forbidden { .. } => {
                Self::other(StatusCode::FORBIDDEN, "PERMISSION_DENIED", message)
            }
            AccessRefused::Guessing { retry_after } => {
                Self::other(StatusCode::TOO_MANY_REQUESTS, "TOO_MANY_GUESSES", message)
                    .with_retry_after(retry_after)
            }
        }
    }
}

impl From<Refusal> for ApiError {
    fn from(refusal: Refusal) -> Self {
        let retry_after = match refusal.reason {
            Reason::Guessing => u32::try_from(REFILL.as_secs()).ok(),
            _ => None,
        };
        let (status, code) = match refusal.reason {
            Reason::Guessing => (StatusCode::TOO_MANY_REQUESTS, "TOO_MANY_GUESSES"),
            Reason::Invalid | Reason::OutOfBounds => (StatusCode::BAD_REQUEST, "INVALID_ARGUMENT"),
            Reason::Unmatched => (StatusCode::BAD_REQUEST, "UNMATCHED"),
            Reason::Unauthenticated => (StatusCode::UNAUTHORIZED, "UNAUTHENTICATED"),
            Reason::Forbidden => (StatusCode::FORBIDDEN, "PERMISSION_DENIED"),
            Reason::State(code) => (StatusCode::CONFLICT, code),
            Reason::NoRoom => (StatusCode::SERVICE_UNAVAILABLE, "RESOURCE_EXHAUSTED"),
            Reason::NoRules => (StatusCode::NOT_FOUND, "NO_RULES"),
            Reason::Unavailable => (StatusCode::SERVICE_UNAVAILABLE, "UNAVAILABLE"),
        };
        Self {
            field: refusal.field,
            retry_after,
            ..Self::other(status, code, refusal.message)
        }
    }
}

impl From<BytesRejection> for ApiError {
    fn from(rejection: BytesRejection) -> Self {
        let status = rejection.status();
        if status == StatusCode::PAYLOAD_TOO_LARGE {
            return Self::too_large();
        }
        if NoReadingRoom::is_cause(&rejection) {
            return Self::unavailable("too many long bodies are being read; try again");
        }
        Self::invalid("body", rejection.body_text())
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let problem = Problem::new(self.status, self.code, &self.message, &self.field);
        let text = match self.member.as_deref() {
            Some((name, member)) => problem.to_json_with(name, member),
            None => problem.to_json(),
        };
        let kind = [(CONTENT_TYPE, PROBLEM_JSON)];
        let mut response = (self.status, kind, text).into_response();
        if self.status == StatusCode::UNAUTHORIZED {
            let scheme = || HeaderValue::from_static("Bearer");
            let challenge = self.challenge.as_deref().cloned();
            let challenge = challenge.unwrap_or_else(scheme);
            response.headers_mut().insert(WWW_AUTHENTICATE, challenge);
        }
        if let Some(seconds) = self.retry_after {
            response.headers_mut().insert(RETRY_AFTER, seconds.into());
        }
        // A listener may log it.
        response.extensions_mut().insert(self);
        response
    }
}

/// Bounds what is read of long bodies, over all connections.
pub(crate) async fn bound_reading(
    State(room): State<ReadingRoom>,
    request: Request,
    next: Next,
) -> Response {
    let length = request.body().size_hint().upper();
    let is_short = length.is_some_and(|bytes| bytes <= SHORT_BYTES_MAX as u64);
    let request = match is_short {
        true => request,
        false => request.map(|body| Body::new(room.bound(body))),
    };
    next.run(request).await
}

/// Refuses a body whose declared length is too large, before waiting for any of it.
pub(crate) async fn refuse_large(
    State(body_bytes_max): State<usize>,
    request: Request,
    next: Next,
) -> Response {
    if request.body().size_hint().lower() <= body_bytes_max as u64 {
        return next.run(request).await;
    }
    // What follows on this connection is that body.
    ([(CONNECTION, "close")], ApiError::too_large()).into_response()
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
