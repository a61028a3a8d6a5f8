//! `ratekeeper.v1` over gRPC: each method reads its message, calls a handler, writes its answer.

mod messages;
mod read;
mod room_body;
mod stream;

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use http::header::{AUTHORIZATION, HeaderValue};
use http::{Extensions, HeaderMap};
use prost::encoding::message;
use ratekeeper_proto::ratekeeper::v1;
use ratekeeper_proto::ratekeeper::v1::rate_limiter_service_server::RateLimiterService;
use tonic::{Request, Response, Status, Streaming};

use crate::access::callers::{Callers, Power};
use crate::app::App;
use crate::listen::Peer;
use crate::logs::denials::CheckOrigin;
use crate::protocol::v1::{
    AcquireRequest, Api, Batch, CHECKS_MAX, CheckAnswer, CheckRequest, HeldAnswer, Object,
    RefundRequest, Refusal, Released, Renewed, ReserveRequest, Sender, Unmatched,
};
use messages::{check_requests, check_response, limit_requests};
use room_body::HeldRoom;
use stream::{Answers, StreamSender};

pub(super) use room_body::{hold_room, hold_room_direct};
pub(super) use stream::answers;

/// Our own service on top of an [`App`].
#[derive(Debug)]
pub(super) struct Service {
    app: Arc<App>,
}

/// The sender of a message.
struct MessageSender<'a> {
    callers: &'a Callers,
    peer: Option<&'a Peer>,
    headers: &'a HeaderMap,
}

impl Sender for MessageSender<'_> {
    type Error = Status;

    fn permit(&self, power: Power) -> Result<&str, Status> {
        let authorization = self.headers.get(AUTHORIZATION);
        let authorization = authorization.map(HeaderValue::as_bytes);
        let admitted = self.callers.admit(self.peer, authorization, power);
        let admitted = admitted.and_then(|it| it.unless_page(self.headers));
        Ok(admitted.map_err(Refusal::from)?.name)
    }

    fn origin(&self) -> CheckOrigin<'_> {
        CheckOrigin::new("v1", Some(self.headers))
    }
}

impl Service {
    pub(super) const fn new(app: Arc<App>) -> Self {
        Self { app }
    }

    fn sender<'a, T>(&'a self, request: &'a Request<T>) -> MessageSender<'a> {
        self.sender_of(request.metadata().as_ref(), request.extensions())
    }

    fn sender_of<'a>(
        &'a self,
        headers: &'a HeaderMap,
        extensions: &'a Extensions,
    ) -> MessageSender<'a> {
        MessageSender {
            callers: &self.app.callers,
            peer: extensions.get(),
            headers,
        }
    }

    /// The sender of a stream that came with `headers` and `extensions`.
    pub(super) fn stream_sender(
        &self,
        headers: &HeaderMap,
        extensions: &Extensions,
    ) -> StreamSender {
        let sender = self.sender_of(headers, extensions);
        let may_override = sender.permit(Power::Override).map(drop);
        StreamSender { may_override }
    }

    /// Answers an encoded check; None if it is not plain and has to be decoded.
    pub(super) async fn check_plain<B>(
        &self,
        head: &http::Request<B>,
        message: &[u8],
    ) -> Option<Checked> {
        let check = read::check(message)?;
        let sender = self.sender_of(head.headers(), head.extensions());
        Some(self.decide(&sender, &check).await)
    }

    /// Answers an encoded batch, in the same way; the answer is encoded as well.
    pub(super) async fn batch_plain<B>(
        &self,
        head: &http::Request<B>,
        message: &[u8],
    ) -> Option<BatchEncoded> {
        let checks = read::batch(message)?;
        let sender = self.sender_of(head.headers(), head.extensions());
        Some(self.encode_all(&sender, &checks).await)
    }

    /// Decides all `checks`, and writes each answer as soon as it is there: a message of all of them would be moved, and
    /// measured, several times.
    async fn encode_all(
        &self,
        sender: &MessageSender<'_>,
        checks: &[Object<CheckRequest<'_>>],
    ) -> BatchEncoded {
        const RESULTS: u32 = 1;
        let mut written = BytesMut::with_capacity(checks.len().min(CHECKS_MAX) * ANSWER_BYTES);
        let write = |check: &CheckRequest<'_>, answer: &CheckAnswer<'_>| {
            let from = written.len();
            message::encode(RESULTS, &check_response(check, answer), &mut written);
            from..written.len()
        };
        let api = Api::new(&self.app, sender);
        let Batch { results, room } = api.check_all(checks, write).await?;
        // Late answers were written after those of later checks.
        if !results.is_sorted_by_key(|result| result.start) {
            let all = written.split().freeze();
            results
                .into_iter()
                .for_each(|result| written.extend_from_slice(&all[result]));
        }
        let mut answer = Response::new(written.freeze());
        if let Some(room) = room {
            answer.extensions_mut().insert(HeldRoom::new(room));
        }
        Ok(answer)
    }

    async fn decide(&self, sender: &MessageSender<'_>, check: &CheckRequest<'_>) -> Checked {
        let read = |answer: &CheckAnswer<'_>| check_response(check, answer);
        let api = Api::new(&self.app, sender);
        let response = api.check(check, Unmatched::Allowed, read).await?;
        Ok(Response::new(response))
    }

    async fn decide_all(
        &self,
        sender: &MessageSender<'_>,
        checks: &[Object<CheckRequest<'_>>],
    ) -> BatchChecked {
        let api = Api::new(&self.app, sender);
        let Batch { results, room } = api.check_all(checks, check_response).await?;
        let mut response = Response::new(v1::CheckBatchResponse { results });
        if let Some(room) = room {
            response.extensions_mut().insert(HeldRoom::new(room));
        }
        Ok(response)
    }
}

type Checked = Result<Response<v1::CheckResponse>, Status>;
type BatchChecked = Result<Response<v1::CheckBatchResponse>, Status>;
type BatchEncoded = Result<Response<Bytes>, Status>;

/// About as many bytes as the answer to a check of one limit has.
const ANSWER_BYTES: usize = 64;

#[tonic::async_trait]
impl RateLimiterService for Service {
    type CheckStreamStream = Answers;

    async fn check(&self, request: Request<v1::CheckRequest>) -> Checked {
        let check = request.get_ref().into();
        self.decide(&self.sender(&request), &check).await
    }

    async fn check_batch(&self, request: Request<v1::CheckBatchRequest>) -> BatchChecked {
        let checks = check_requests(&request.get_ref().checks);
        self.decide_all(&self.sender(&request), &checks).await
    }

    async fn check_stream(
        &self,
        request: Request<Streaming<v1::CheckStreamRequest>>,
    ) -> Result<Response<Answers>, Status> {
        let sender = self.stream_sender(request.metadata().as_ref(), request.extensions());
        let app = Arc::clone(&self.app);
        Ok(Response::new(answers(app, sender, request.into_inner())))
    }

    async fn limit(
        &self,
        request: Request<v1::LimitRequest>,
    ) -> Result<Response<v1::LimitResponse>, Status> {
        let sender = self.sender(&request);
        let asked = request.get_ref().into();
        let answer = Api::new(&self.app, &sender).limit(&asked).await?;
        Ok(Response::new(answer.into()))
    }

    async fn limit_batch(
        &self,
        request: Request<v1::LimitBatchRequest>,
    ) -> Result<Response<v1::LimitBatchResponse>, Status> {
        let sender = self.sender(&request);
        let asked = limit_requests(&request.get_ref().limits);
        let results = Api::new(&self.app, &sender).limit_all(&asked).await?;
        let results = results.into_iter().map(Into::into).collect();
        Ok(Response::new(v1::LimitBatchResponse { results }))
    }

    async fn peek(
        &self,
        request: Request<v1::PeekRequest>,
    ) -> Result<Response<v1::PeekResponse>, Status> {
        let sender = self.sender(&request);
        let request = CheckRequest::from(request.get_ref());
        let api = Api::new(&self.app, &sender);
        let read = |answer: &CheckAnswer<'_>| answer.into();
        Ok(Response::new(api.peek((&request).into(), read).await?))
    }

    async fn acquire(
        &self,
        request: Request<v1::AcquireRequest>,
    ) -> Result<Response<v1::AcquireResponse>, Status> {
        let sender = self.sender(&request);
        let holder = Api::new(&self.app, &sender).holder()?;
        let request = AcquireRequest::from(request.get_ref());
        let read = |held: &HeldAnswer<'_>| held.into();
        let response = holder.acquire(&request, read).await?;
        Ok(Response::new(response))
    }

    async fn release(
        &self,
        request: Request<v1::ReleaseRequest>,
    ) -> Result<Response<v1::ReleaseResponse>, Status> {
        let sender = self.sender(&request);
        let holder = Api::new(&self.app, &sender).holder()?;
        let Released { was_held } = holder.release(&request.get_ref().permit).await?;
        Ok(Response::new(v1::ReleaseResponse { was_held }))
    }

    async fn renew(
        &self,
        request: Request<v1::RenewRequest>,
    ) -> Result<Response<v1::RenewResponse>, Status> {
        let sender = self.sender(&request);
        let holder = Api::new(&self.app, &sender).holder()?;
        let Renewed { expires_after_ms } = holder.renew(&request.get_ref().permit).await?;
        Ok(Response::new(v1::RenewResponse { expires_after_ms }))
    }

    async fn reserve(
        &self,
        request: Request<v1::ReserveRequest>,
    ) -> Result<Response<v1::ReserveResponse>, Status> {
        let sender = self.sender(&request);
        let holder = Api::new(&self.app, &sender).holder()?;
        let request = ReserveRequest::from(request.get_ref());
        let read = |held: &HeldAnswer<'_>| held.into();
        let response = holder.reserve(&request, read).await?;
        Ok(Response::new(response))
    }

    async fn commit(
        &self,
        request: Request<v1::CommitRequest>,
    ) -> Result<Response<v1::CommitResponse>, Status> {
        let sender = self.sender(&request);
        let holder = Api::new(&self.app, &sender).holder()?;
        let v1::CommitRequest { reservation, hits } = request.get_ref();
        let settled = holder.commit(reservation, *hits).await?;
        Ok(Response::new(v1::CommitResponse {
            given_back: settled.given_back,
            limits: count(settled.limits),
            limits_gone: count(settled.limits_gone),
            repeated_before: settled.repeated_before,
        }))
    }

    async fn cancel(
        &self,
        request: Request<v1::CancelRequest>,
    ) -> Result<Response<v1::CancelResponse>, Status> {
        let sender = self.sender(&request);
        let holder = Api::new(&self.app, &sender).holder()?;
        let settled = holder.cancel(&request.get_ref().reservation).await?;
        Ok(Response::new(v1::CancelResponse {
            given_back: settled.given_back,
            limits: count(settled.limits),
            limits_gone: count(settled.limits_gone),
            repeated_before: settled.repeated_before,
        }))
    }

    async fn refund(
        &self,
        request: Request<v1::RefundRequest>,
    ) -> Result<Response<v1::RefundResponse>, Status> {
        let sender = self.sender(&request);
        let refunder = Api::new(&self.app, &sender).refunder()?;
        let request = RefundRequest::from(request.get_ref());
        let read = |answer: &CheckAnswer<'_>| answer.into();
        let response = refunder.refund(&request, read).await?;
        Ok(Response::new(response))
    }
}

fn count(limits: usize) -> u32 {
    u32::try_from(limits).unwrap_or(u32::MAX)
}
