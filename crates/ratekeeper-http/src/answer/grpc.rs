//! Errors in the form that gRPC clients read: in headers, without a body.
//!
//! `grpc-status-details-bin` is a `google.rpc.Status` with a `google.rpc.RetryInfo`. The four small
//! messages are encoded by hand, so that an embedder's build needs no protobuf; a test decodes them
//! with a library.

use base64::Engine;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use http::{HeaderName, HeaderValue};

use super::HeaderLines;
use super::status::shown;

/// The gRPC codes of refusals.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Code {
    InvalidArgument = 3,
    ResourceExhausted = 8,
    Unavailable = 14,
    Unauthenticated = 16,
}

static STATUS: HeaderName = HeaderName::from_static("grpc-status");
static MESSAGE: HeaderName = HeaderName::from_static("grpc-message");
static DETAILS: HeaderName = HeaderName::from_static("grpc-status-details-bin");

const RETRY_INFO: &str = "type.googleapis.com/google.rpc.RetryInfo";

/// The headers of an error, with the retry time if it is known.
pub(super) fn error(code: Code, message: &str, retry_after: Option<u64>) -> HeaderLines {
    let code = code as u8;
    let mut lines = vec![(STATUS.clone(), HeaderValue::from(u16::from(code)))];
    if let Ok(message) = HeaderValue::from_str(&shown(message)) {
        lines.push((MESSAGE.clone(), message));
    }
    if let Some(seconds) = retry_after {
        let details = STANDARD_NO_PAD.encode(status(code, message, seconds));
        if let Ok(details) = HeaderValue::try_from(details) {
            lines.push((DETAILS.clone(), details));
        }
    }
    lines
}

/// `google.rpc.Status { code = 1, message = 2, details = 3 }`.
fn status(code: u8, message: &str, retry_after_secs: u64) -> Vec<u8> {
    // google.protobuf.Duration { seconds = 1 }
    let mut duration = Vec::new();
    number(&mut duration, 1, retry_after_secs);
    // google.rpc.RetryInfo { retry_delay = 1 }
    let mut retry_info = Vec::new();
    bytes(&mut retry_info, 1, &duration);
    // google.protobuf.Any { type_url = 1, value = 2 }
    let mut any = Vec::new();
    bytes(&mut any, 1, RETRY_INFO.as_bytes());
    bytes(&mut any, 2, &retry_info);
    let mut status = Vec::new();
    number(&mut status, 1, u64::from(code));
    bytes(&mut status, 2, message.as_bytes());
    bytes(&mut status, 3, &any);
    status
}

/// A field of wire type 0.
fn number(out: &mut Vec<u8>, field: u8, value: u64) {
    out.push(field << 3);
    varint(out, value);
}

/// A field of wire type 2.
fn bytes(out: &mut Vec<u8>, field: u8, value: &[u8]) {
    out.push(field << 3 | 2);
    varint(out, value.len() as u64);
    out.extend_from_slice(value);
}

#[expect(clippy::cast_possible_truncation, reason = "below 0x80 after the loop")]
fn varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push((value & 0x7f) as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

#[cfg(test)]
mod tests {
    use prost::Message;

    use super::*;

    #[derive(Message)]
    struct Status {
        #[prost(int32, tag = "1")]
        code: i32,
        #[prost(string, tag = "2")]
        message: String,
        #[prost(message, repeated, tag = "3")]
        details: Vec<prost_types::Any>,
    }

    #[derive(Message)]
    struct RetryInfo {
        #[prost(message, tag = "1")]
        retry_delay: Option<prost_types::Duration>,
    }

    #[test]
    fn a_library_reads_when_to_come_back() {
        for seconds in [1, 127, 128, 86_400, u64::from(u32::MAX)] {
            let lines = error(Code::ResourceExhausted, "too much: 100 %", Some(seconds));
            assert_eq!(lines[0].1, "8");
            assert_eq!(lines[1].1, "too much: 100 %25");
            let details = STANDARD_NO_PAD.decode(&lines[2].1).expect("base64");
            let status = Status::decode(&*details).expect("a Status");
            assert_eq!((status.code, &*status.message), (8, "too much: 100 %"));
            let [any] = &status.details[..] else {
                panic!("one detail: {status:?}")
            };
            assert_eq!(any.type_url, RETRY_INFO);
            let info = RetryInfo::decode(&*any.value).expect("a RetryInfo");
            let delay = info.retry_delay.expect("a delay");
            assert_eq!(
                (u64::try_from(delay.seconds), delay.nanos),
                (Ok(seconds), 0)
            );
        }
        assert_eq!(error(Code::InvalidArgument, "", None).len(), 2);
    }
}
