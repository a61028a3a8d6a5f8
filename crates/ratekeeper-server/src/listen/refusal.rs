//! Requests that are refused before any service sees them, or after it took too long.

use bytes::Bytes;
use http::header::{CONNECTION, CONTENT_LENGTH, CONTENT_TYPE, HeaderValue};
use http::{HeaderMap, Request, Response, StatusCode};

use super::error_body::ErrorBody;
use super::line::Line;
use super::problem::{PROBLEM_JSON, Problem};
use super::service::Protocol;

/// The reason a request is refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Refusal {
    /// It took too long, or its client's deadline has passed.
    TooLate,
    /// Its head is larger than this many bytes.
    HeadTooLarge(u32),
    /// Its `grpc-timeout` is malformed.
    BadTimeout,
}

/// The form of a refusal's body.
#[derive(Clone, Copy)]
enum Form {
    Problem,
    Gateway,
}

impl Refusal {
    /// Returns the refusal if a request's head is too large. On HTTP/2 the protocol bounds it.
    pub(super) fn of_head<B>(request: &Request<B>, line: &Line) -> Option<Self> {
        let max = line.bounds.head_bytes_max;
        let is_too_large = line.protocol != Protocol::Http2 && head_bytes(request) > max as usize;
        is_too_large.then_some(Self::HeadTooLarge(max))
    }

    pub(super) fn response(self, protocol: Protocol) -> Response<Bytes> {
        match protocol {
            Protocol::Http1 => self.http(Form::Problem),
            // The gateway's errors have a form of their own.
            Protocol::Either => self.http(Form::Gateway),
            Protocol::Http2 => self.grpc(),
        }
    }

    fn http(self, form: Form) -> Response<Bytes> {
        let (status, code, message) = match self {
            Self::TooLate => (
                StatusCode::REQUEST_TIMEOUT,
                "TIMEOUT",
                "the request took too long to arrive, or to answer".to_owned(),
            ),
            Self::HeadTooLarge(max) => (
                StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
                "TOO_LARGE",
                format!("the request's head is larger than {max} bytes"),
            ),
            Self::BadTimeout => (
                StatusCode::BAD_REQUEST,
                "INVALID_ARGUMENT",
                BAD_TIMEOUT.to_owned(),
            ),
        };
        let (kind, body) = match form {
            Form::Problem => (
                PROBLEM_JSON,
                Problem::new(status, code, &message, "").to_json(),
            ),
            Form::Gateway => ("application/json", ErrorBody::new(code, &message).to_json()),
        };
        let body = Bytes::from(body);
        let length = HeaderValue::from(body.len());
        let mut response = Response::new(body);
        *response.status_mut() = status;
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(kind));
        headers.insert(CONTENT_LENGTH, length);
        // Some of the request may still be in the pipe.
        headers.insert(CONNECTION, HeaderValue::from_static("close"));
        response
    }

    fn grpc(self) -> Response<Bytes> {
        let (status, message) = match self {
            Self::TooLate => ("4", "the request took too long"), // DEADLINE_EXCEEDED
            Self::BadTimeout => ("3", BAD_TIMEOUT),              // INVALID_ARGUMENT
            // Not asked for: see `of_head`.
            Self::HeadTooLarge(_) => ("8", "the request is too large"),
        };
        let mut response = Response::new(Bytes::new());
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
        headers.insert("grpc-status", HeaderValue::from_static(status));
        headers.insert("grpc-message", HeaderValue::from_static(message));
        response
    }
}

const BAD_TIMEOUT: &str =
    "grpc-timeout is not a number of at most 8 digits and one of H, M, S, m, u, n";

/// Estimates the bytes of the head: anything shorter than the bound fits in any case.
fn head_bytes<B>(request: &Request<B>) -> usize {
    let target = request
        .uri()
        .path_and_query()
        .map_or(0, |target| target.as_str().len());
    request.method().as_str().len() + target + header_bytes(request.headers())
}

fn header_bytes(headers: &HeaderMap) -> usize {
    // A colon, a space, and the end of the line.
    let bytes =
        |(name, value): (&http::HeaderName, &HeaderValue)| name.as_str().len() + value.len() + 4;
    headers.iter().map(bytes).sum()
}
