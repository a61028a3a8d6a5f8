//! Answers to messages that no handler has seen, because they are too large or no messages.

use futures_util::stream;
use http::{HeaderValue, Response};
use ratekeeper_proto::Codec;
use ratekeeper_proto::envoy::service::ratelimit::v3::{RateLimitRequest, RateLimitResponse};
use tonic::Status;
use tonic::body::Body;
use tonic::codec::{Codec as _, EncodeBody, SingleMessageCompressionOverride};

use crate::app::App;
use crate::logs::unreadable::Defect;
use crate::protocol::rls;

const STATUS: &str = "grpc-status";
const MESSAGE: &str = "grpc-message";

/// Answers Envoy: with an error, it would let the request pass.
pub(super) fn decide(answer: Response<Body>, app: &App) -> Response<Body> {
    let Some(defect) = defect(&answer) else {
        return answer;
    };
    match app.unreadable.judge("rls", defect, &why(&answer)) {
        Some(passes) => decided(answer, rls::unread(app, passes, 0)),
        None => invalid(answer),
    }
}

/// Answers a client of our own protocol, whose mistake it is.
pub(super) fn refuse(answer: Response<Body>, app: &App) -> Response<Body> {
    let Some(defect) = defect(&answer) else {
        return answer;
    };
    app.unreadable.refuse("v1", defect, &why(&answer));
    invalid(answer)
}

/// The defect of the message, by the codes that no handler uses: tonic's for one that is too large, and our
/// codec's. Only answers without a message carry a status in their head, so this costs a lookup.
fn defect(answer: &Response<Body>) -> Option<Defect> {
    match answer.headers().get(STATUS)?.as_bytes() {
        b"11" => Some(Defect::TooLarge),
        b"15" => Some(Defect::Malformed),
        _ => None,
    }
}

/// tonic's and prost's words, which name fields.
fn why(answer: &Response<Body>) -> String {
    let status = Status::from_header_map(answer.headers());
    status.map_or_else(String::new, |status| status.message().to_owned())
}

fn invalid(mut answer: Response<Body>) -> Response<Body> {
    const INVALID_ARGUMENT: HeaderValue = HeaderValue::from_static("3");
    answer.headers_mut().insert(STATUS, INVALID_ARGUMENT);
    answer
}

fn decided(answer: Response<Body>, response: RateLimitResponse) -> Response<Body> {
    let (mut head, _) = answer.into_parts();
    for name in [STATUS, MESSAGE] {
        head.headers.remove(name);
    }
    let encoder = Codec::<RateLimitResponse, RateLimitRequest>::default().encoder();
    let message = stream::iter([Ok(response)]);
    let plain = SingleMessageCompressionOverride::default();
    let body = EncodeBody::new_server(encoder, message, None, plain, None);
    Response::from_parts(head, Body::new(body))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Headers have spaces and more percent-encoded.
    #[test]
    fn the_words_are_told_as_they_were_said() {
        let said = "field \u{e9}: 100% of it is 7 bytes";
        let answer = Status::data_loss(said).into_http();
        assert!(answer.headers()[MESSAGE].as_bytes().contains(&b'%'));
        assert_eq!(why(&answer), said);
    }
}
