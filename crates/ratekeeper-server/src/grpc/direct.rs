//! Calls that are answered without tonic, which costs more than most decisions.
//!
//! Only what is plain comes this way: one whole message, neither long nor compressed, to a method that decides. All other
//! requests go on to tonic as they came, so that there is one place for each rule of the protocol. Of a stream of checks,
//! which would keep tonic's buffer, the messages are read here ([`Incoming`]) and the answers written by tonic.

use std::convert::Infallible;
use std::future::Future;
use std::sync::Arc;

use bytes::{BufMut, Bytes, BytesMut};
use http::header::{CONTENT_TYPE, HeaderName, HeaderValue};
use http::{HeaderMap, Method, Request, Response};
use prost::Message;
use ratekeeper_proto::envoy::service::ratelimit::v3::RateLimitRequest;
use ratekeeper_proto::ratekeeper::v1::rate_limiter_service_server::RateLimiterService;
use ratekeeper_proto::ratekeeper::v1::{CheckStreamRequest, CheckStreamResponse};
use ratekeeper_proto::{Codec, SHORT_BYTES_MAX};
use tonic::Status;
use tonic::body::Body;
use tonic::codec::{Codec as _, EncodeBody, SingleMessageCompressionOverride};
use tonic::metadata::MetadataMap;
use tower::Service;

use super::incoming::{Incoming, MessageBounds};
use super::{Grpc, Services, v1};
use crate::http::media_type::is_grpc;
use crate::listen::{DirectBody, DirectService, Gathered, RequestBody, Whole};

/// The flag and the length before a message.
pub(super) const PREFIX_BYTES: usize = 5;

const GRPC: HeaderValue = HeaderValue::from_static("application/grpc");

static GRPC_ENCODING: HeaderName = HeaderName::from_static("grpc-encoding");
static GRPC_STATUS: HeaderName = HeaderName::from_static("grpc-status");

/// An answer; none to a request that is tonic's, which can still be read from its beginning.
type Outcome = Option<Response<DirectBody<Body>>>;

impl DirectService for Grpc {
    type Body = Body;

    async fn answer(
        &self,
        request: &mut Request<RequestBody>,
    ) -> Result<Response<DirectBody<Body>>, Infallible> {
        if let Some(answer) = answer(&self.0, request).await {
            return Ok(answer);
        }
        // Boxed: the short way is not to carry what the long one needs.
        let answer = Box::pin(self.clone().call(RequestBody::take(request))).await?;
        Ok(answer.map(DirectBody::stream))
    }
}

async fn answer(services: &Services, request: &mut Request<RequestBody>) -> Outcome {
    let v1 = &services.v1;
    match Call::of(request)? {
        Call::ShouldRateLimit => should_rate_limit(services, request).await,
        Call::Check => check(services, request).await,
        Call::CheckBatch => check_batch(services, request).await,
        Call::Limit => unary(services, request, |asked| v1.limit(asked)).await,
        Call::LimitBatch => unary(services, request, |asked| v1.limit_batch(asked)).await,
        Call::CheckStream => Some(check_stream(services, request)),
    }
}

/// The methods that are answered here.
#[derive(Clone, Copy)]
enum Call {
    ShouldRateLimit,
    Check,
    CheckBatch,
    Limit,
    LimitBatch,
    CheckStream,
}

impl Call {
    /// None for one that is tonic's.
    fn of<B>(request: &Request<B>) -> Option<Self> {
        let call = match request.uri().path() {
            "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit" => Self::ShouldRateLimit,
            "/ratekeeper.v1.RateLimiterService/Check" => Self::Check,
            "/ratekeeper.v1.RateLimiterService/CheckBatch" => Self::CheckBatch,
            "/ratekeeper.v1.RateLimiterService/Limit" => Self::Limit,
            "/ratekeeper.v1.RateLimiterService/LimitBatch" => Self::LimitBatch,
            "/ratekeeper.v1.RateLimiterService/CheckStream" => Self::CheckStream,
            _ => return None,
        };
        let headers = request.headers();
        let encoding = headers.get(&GRPC_ENCODING);
        let is_plain = encoding.is_none_or(|encoding| encoding == "identity");
        (request.method() == Method::POST && is_plain && is_grpc(headers)).then_some(call)
    }
}

/// Answers a call of Envoy's protocol.
async fn should_rate_limit(services: &Services, request: &mut Request<RequestBody>) -> Outcome {
    let rls = &services.rls;
    let (request, bytes) = message(services, request).await?;
    let (headers, extensions) = (request.headers(), request.extensions());
    let decided = if let Some(check) = rls.plain(bytes) {
        rls.decide_plain(headers, extensions, check).await
    } else {
        let message = RateLimitRequest::decode(bytes).ok()?;
        rls.decide(headers, extensions, &message).await
    };
    Some(match decided {
        Ok(answer) => whole(&answer).map(DirectBody::whole),
        Err(status) => refused(status),
    })
}

/// Answers a check of `ratekeeper.v1`.
async fn check(services: &Services, request: &mut Request<RequestBody>) -> Outcome {
    let (head, bytes) = message(services, request).await?;
    if let Some(answer) = services.v1.check_plain(head, bytes).await {
        return Some(answered(answer));
    }
    unary(services, request, |asked| services.v1.check(asked)).await
}

/// Answers a batch of them.
async fn check_batch(services: &Services, request: &mut Request<RequestBody>) -> Outcome {
    let (head, bytes) = message(services, request).await?;
    if let Some(answer) = services.v1.batch_plain(head, bytes).await {
        let write =
            |encoded: Bytes| whole_of(encoded.len(), |data| data.extend_from_slice(&encoded));
        return Some(answered_with(answer, write));
    }
    unary(services, request, |asked| services.v1.check_batch(asked)).await
}

/// Answers the messages of a stream as they come.
fn check_stream(
    services: &Services,
    request: &mut Request<RequestBody>,
) -> Response<DirectBody<Body>> {
    let (head, body) = RequestBody::take(request).into_parts();
    let questions = Incoming::new(body, MessageBounds::of(&services.app));
    let sender = services.v1.stream_sender(&head.headers, &head.extensions);
    let answers = v1::answers(Arc::clone(&services.app), sender, questions);
    let encoder = Codec::<CheckStreamResponse, CheckStreamRequest>::default().encoder();
    let plain = SingleMessageCompressionOverride::default();
    let body = EncodeBody::new_server(encoder, answers, None, plain, None);
    let mut answer = Response::new(DirectBody::stream(Body::new(body)));
    answer.headers_mut().insert(CONTENT_TYPE, GRPC);
    answer
}

/// Answers a call of `ratekeeper.v1` by its `handler`.
async fn unary<Q, A, F>(
    services: &Services,
    request: &mut Request<RequestBody>,
    handler: impl FnOnce(tonic::Request<Q>) -> F,
) -> Outcome
where
    Q: Message + Default,
    A: Message,
    F: Future<Output = Result<tonic::Response<A>, Status>>,
{
    let (_, bytes) = message(services, request).await?;
    let message = Q::decode(bytes).ok()?;
    let metadata = MetadataMap::from_headers(std::mem::take(request.headers_mut()));
    let extensions = std::mem::take(request.extensions_mut());
    let asked = tonic::Request::from_parts(metadata, extensions, message);
    Some(answered(handler(asked).await))
}

/// The answer of a handler of `ratekeeper.v1`.
fn answered<A: Message>(answer: Result<tonic::Response<A>, Status>) -> Response<DirectBody<Body>> {
    answered_with(answer, |message| whole(&message))
}

/// The answer of such a handler, of which `write` makes bytes.
fn answered_with<A>(
    answer: Result<tonic::Response<A>, Status>,
    write: impl FnOnce(A) -> Response<Whole>,
) -> Response<DirectBody<Body>> {
    match answer {
        Ok(answer) => {
            let (_, message, extensions) = answer.into_parts();
            let mut answer = write(message).map(DirectBody::whole);
            *answer.extensions_mut() = extensions;
            v1::hold_room_direct(answer)
        }
        Err(status) => refused(status),
    }
}

/// A request whose body is there, and the bytes of its message. None if it is not plain.
async fn message<'a>(
    services: &Services,
    request: &'a mut Request<RequestBody>,
) -> Option<(&'a Request<RequestBody>, &'a [u8])> {
    let message_max = services.app.config.bounds.message_bytes_max;
    let bytes_max = message_max.min(SHORT_BYTES_MAX);
    let body = request.body_mut();
    let is_whole = body.is_whole(|bytes| gathered(bytes, bytes_max)).await;
    let request = &*request;
    let bytes = request.body().bytes().get(PREFIX_BYTES..)?;
    is_whole.then_some((request, bytes))
}

/// Judges what has come of a body: one plain message of up to `bytes_max` bytes is gathered.
fn gathered(bytes: &[u8], bytes_max: usize) -> Gathered {
    let Some((&[flag, ref length @ ..], message)) = bytes.split_first_chunk::<PREFIX_BYTES>()
    else {
        return Gathered::Begun;
    };
    let length = u32::from_be_bytes(*length) as usize;
    if flag != 0 || length > bytes_max || message.len() > length {
        return Gathered::Unfit;
    }
    match message.len() == length {
        true => Gathered::Whole,
        false => Gathered::Begun,
    }
}

/// A message and the status that follows it.
fn whole(message: &impl Message) -> Response<Whole> {
    whole_of(message.encoded_len(), |data| message.encode_raw(data))
}

/// A message of `length` bytes, which `encode` writes, and the status that follows it.
fn whole_of(length: usize, encode: impl FnOnce(&mut BytesMut)) -> Response<Whole> {
    const OK: HeaderValue = HeaderValue::from_static("0");
    let mut data = BytesMut::with_capacity(PREFIX_BYTES + length);
    data.put_u8(0);
    // Answers are ours, and far shorter.
    data.put_u32(u32::try_from(length).unwrap_or(u32::MAX));
    encode(&mut data);
    let mut trailers = HeaderMap::with_capacity(1);
    trailers.insert(&GRPC_STATUS, OK);
    let mut headers = HeaderMap::with_capacity(1);
    headers.insert(CONTENT_TYPE, GRPC);
    let mut answer = Response::new(Whole {
        data: data.freeze(),
        trailers,
    });
    *answer.headers_mut() = headers;
    answer
}

/// An answer that has nothing but a status.
fn refused(status: Status) -> Response<DirectBody<Body>> {
    status.into_http::<Body>().map(DirectBody::stream)
}
