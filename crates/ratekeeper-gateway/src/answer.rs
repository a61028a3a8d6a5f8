//! The gateway's own answers, in place of an upstream's.

use bytes::Bytes;
use http::header::{CONNECTION, CONTENT_LENGTH, CONTENT_TYPE, HeaderValue, RETRY_AFTER};
use http::{Response, StatusCode};

use crate::body::ProxyBody;
use crate::fault::Fault;

impl Fault {
    /// The answer: JSON, or a gRPC status for gRPC clients. The fault is among its extensions, for the log.
    pub(crate) fn response(self, is_grpc: bool) -> Response<ProxyBody> {
        let mut response = match is_grpc {
            true => self.grpc(),
            false => self.http(),
        };
        response.extensions_mut().insert(self);
        response
    }

    fn http(&self) -> Response<ProxyBody> {
        let mut error = serde_json::json!({ "code": self.code(), "message": self.message() });
        if let (Some(upstream), Some(error)) = (self.upstream(), error.as_object_mut()) {
            error.insert("upstream".to_owned(), upstream.into());
        }
        let text = serde_json::json!({ "error": error }).to_string();
        let mut response = Response::new(ProxyBody::text(Bytes::from(text)));
        *response.status_mut() = self.status();
        let length = response.body().text_length();
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.insert(CONTENT_LENGTH, HeaderValue::from(length));
        if self.status() == StatusCode::SERVICE_UNAVAILABLE {
            headers.insert(RETRY_AFTER, HeaderValue::from_static("1"));
        }
        if self.leaves_rest() {
            headers.insert(CONNECTION, HeaderValue::from_static("close"));
        }
        if *self == Self::NoTunnel {
            // RFC 9110, section 15.5.6, requires the methods that would be allowed.
            let allowed = HeaderValue::from_static("GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS");
            headers.insert(http::header::ALLOW, allowed);
        }
        response
    }

    fn grpc(&self) -> Response<ProxyBody> {
        let status = match self.status() {
            StatusCode::GATEWAY_TIMEOUT | StatusCode::REQUEST_TIMEOUT => "4", // DEADLINE_EXCEEDED
            StatusCode::PAYLOAD_TOO_LARGE => "8",                             // RESOURCE_EXHAUSTED
            StatusCode::NOT_FOUND => "12",                                    // UNIMPLEMENTED
            StatusCode::BAD_GATEWAY | StatusCode::SERVICE_UNAVAILABLE => "14", // UNAVAILABLE
            _ => "13",                                                        // INTERNAL
        };
        let mut response = Response::new(ProxyBody::text(Bytes::new()));
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
        headers.insert("grpc-status", HeaderValue::from_static(status));
        // Only the characters of the system's messages that a header can carry.
        let message: String = self.message().chars().filter(char::is_ascii).collect();
        if let Ok(message) = HeaderValue::from_str(&message.replace('%', "%25")) {
            headers.insert("grpc-message", message);
        }
        response
    }
}
