//! The answer to a request that may not pass.

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderValue, Response, StatusCode};
use serde::Serialize;
use serde_json::{Value, json};

use super::{BodyForm, Denial, Form, HeaderLines, grpc};
use crate::{Malformed, RpcId, Unauthenticated};

/// The reason why a request may not pass.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Refusal {
    /// The caller is over a limit: 429, `RESOURCE_EXHAUSTED`.
    Denied(Box<Denial>),
    /// The request could not be decided, or cannot be queued: 503, `UNAVAILABLE`. With seconds to
    /// wait, at least 1.
    Overloaded {
        /// The overloaded or unavailable part, in a sentence.
        message: &'static str,
        /// Seconds until a retry.
        retry_after: u64,
    },
    /// The request was shed, because there is more work than can be done in time: 503, `UNAVAILABLE`.
    Shed {
        /// The shedder: `deadline`, `fleet`, `workers`, `adaptive` or `queue`.
        layer: &'static str,
        /// The reason, in a sentence.
        message: &'static str,
        /// Seconds until a retry, at least 1.
        retry_after: u64,
    },
    /// The request is ambiguous or meaningless: 400, `INVALID_ARGUMENT`.
    Malformed(Malformed),
    /// The bearer token is not accepted: 401, `UNAUTHENTICATED`.
    Unauthenticated(Unauthenticated),
}

/// The code of JSON-RPC for a call that is no valid request.
const INVALID_REQUEST: i32 = -32_600;

/// The code for one that the server does not carry out, of those that are the server's to define.
const SERVER_ERROR: i32 = -32_000;

#[derive(Serialize)]
struct Body<'a> {
    error: Error<'a>,
}

#[derive(Serialize)]
struct Error<'a> {
    code: &'static str,
    message: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    layer: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    retry_after: Option<u64>,
}

impl Refusal {
    /// The HTTP status.
    #[must_use]
    pub const fn status(&self) -> StatusCode {
        match self {
            Self::Denied(_) => StatusCode::TOO_MANY_REQUESTS,
            Self::Overloaded { .. } | Self::Shed { .. } => StatusCode::SERVICE_UNAVAILABLE,
            Self::Malformed(_) => StatusCode::BAD_REQUEST,
            Self::Unauthenticated(_) => StatusCode::UNAUTHORIZED,
        }
    }

    /// The response in `form`, with `lines` among its headers.
    #[must_use]
    pub fn response(&self, form: &Form, lines: HeaderLines) -> Response<Bytes> {
        let (status, body, kind) = match form {
            Form::Http(BodyForm::Json) => (
                self.status(),
                self.json(),
                HeaderValue::from_static("application/json"),
            ),
            Form::Http(BodyForm::Problem) => (
                self.status(),
                self.problem(),
                HeaderValue::from_static("application/problem+json"),
            ),
            Form::Http(BodyForm::JsonRpc) => (
                self.status(),
                self.rpc(&Value::Null),
                HeaderValue::from_static("application/json"),
            ),
            Form::Rpc(RpcId(id)) => (
                self.status(),
                self.rpc(id),
                HeaderValue::from_static("application/json"),
            ),
            Form::Grpc(kind) => (StatusCode::OK, Bytes::new(), kind.clone()),
        };
        let mut response = Response::new(body);
        *response.status_mut() = status;
        let headers = response.headers_mut();
        headers.extend(lines);
        headers.insert(CONTENT_TYPE, kind);
        if let Self::Overloaded { retry_after, .. } | Self::Shed { retry_after, .. } = self {
            headers.insert(http::header::RETRY_AFTER, (*retry_after).into());
        }
        if let Self::Unauthenticated(unauthenticated) = self {
            headers.insert(http::header::WWW_AUTHENTICATE, unauthenticated.challenge());
        }
        if matches!(form, Form::Grpc(_)) {
            headers.extend(grpc::error(
                self.grpc_code(),
                &self.message(),
                self.wait_secs(),
            ));
        }
        response
    }

    /// The shedder that refused the request; None if it was not shed.
    #[must_use]
    pub const fn layer(&self) -> Option<&'static str> {
        match self {
            Self::Shed { layer, .. } => Some(layer),
            _ => None,
        }
    }

    fn json(&self) -> Bytes {
        match self {
            Self::Denied(denial) => written(&denial.body()),
            _ => {
                let (code, retry_after) = match self {
                    Self::Overloaded { retry_after, .. } => ("OVERLOADED", Some(*retry_after)),
                    Self::Shed { retry_after, .. } => ("SHED", Some(*retry_after)),
                    Self::Unauthenticated(_) => ("UNAUTHENTICATED", None),
                    _ => ("BAD_REQUEST", None),
                };
                let message = &self.message();
                written(&Body {
                    error: Error {
                        code,
                        message,
                        layer: self.layer(),
                        retry_after,
                    },
                })
            }
        }
    }

    /// The error of JSON-RPC 2.0 about the call `id`, with the usual body's error as its data.
    fn rpc(&self, id: &Value) -> Bytes {
        let code = match self {
            Self::Malformed(_) => INVALID_REQUEST,
            Self::Denied(_)
            | Self::Overloaded { .. }
            | Self::Shed { .. }
            | Self::Unauthenticated(_) => SERVER_ERROR,
        };
        let usual: Value = serde_json::from_slice(&self.json()).unwrap_or_default();
        let error = json!({ "code": code, "message": self.message(), "data": usual["error"] });
        written(&json!({ "jsonrpc": "2.0", "id": id, "error": error }))
    }

    /// The body in the problem form. Its types are those that the draft registers; a malformed
    /// request has no type of its own.
    fn problem(&self) -> Bytes {
        let status = self.status();
        let (kind, title) = match self {
            Self::Denied(_) => (
                "https://iana.org/assignments/http-problem-types#quota-exceeded",
                "Quota Exceeded",
            ),
            Self::Overloaded { .. } | Self::Shed { .. } => (
                "https://iana.org/assignments/http-problem-types#temporary-reduced-capacity",
                "Temporary Reduced Capacity",
            ),
            Self::Malformed(_) | Self::Unauthenticated(_) => {
                ("about:blank", status.canonical_reason().unwrap_or_default())
            }
        };
        let mut problem = json!({
            "type": kind,
            "title": title,
            "status": status.as_u16(),
            "detail": self.message(),
        });
        if let Self::Denied(denial) = self {
            problem["violated-policies"] = json!(denial.violated().as_slice());
        }
        written(&problem)
    }

    fn message(&self) -> String {
        match self {
            Self::Denied(denial) => denial.message(),
            Self::Overloaded { message, .. } | Self::Shed { message, .. } => (*message).to_owned(),
            Self::Malformed(malformed) => malformed.to_string(),
            Self::Unauthenticated(unauthenticated) => unauthenticated.to_string(),
        }
    }

    fn wait_secs(&self) -> Option<u64> {
        match self {
            Self::Denied(denial) => denial.retry_after_secs(),
            Self::Overloaded { retry_after, .. } | Self::Shed { retry_after, .. } => {
                Some(*retry_after)
            }
            Self::Malformed(_) | Self::Unauthenticated(_) => None,
        }
    }

    const fn grpc_code(&self) -> grpc::Code {
        match self {
            Self::Denied(_) => grpc::Code::ResourceExhausted,
            Self::Overloaded { .. } | Self::Shed { .. } => grpc::Code::Unavailable,
            Self::Malformed(_) => grpc::Code::InvalidArgument,
            Self::Unauthenticated(_) => grpc::Code::Unauthenticated,
        }
    }
}

/// Serializes a body. Text and numbers always serialize to JSON.
fn written(body: &impl Serialize) -> Bytes {
    serde_json::to_vec(body).unwrap_or_default().into()
}
