//! The gRPC service: each method parses, calls one method of the limiter, maps the answer.

use std::sync::Arc;

use ratekeeper_core::Timestamp;
use ratekeeper_limiter::{Held, Reservation, Reserve, Ruling, Settled};
use ratekeeper_proto::ratekeeper::v1;
use ratekeeper_proto::ratekeeper::v1::rate_limiter_service_server::RateLimiterService;
use tonic::{Request, Response, Status, Streaming};

use super::question::{Place, Question};
use super::room::AnswerRoom;
use super::stream::{Answers, answers};
use super::{Refusal, answer, key, no_refund, reserved_hits, ttl};
use crate::app::App;
use crate::callers::{Denied, Power};
use crate::listen::Peer;
use crate::store::ServedStore;

/// Our own service on top of an [`App`].
#[derive(Debug)]
pub(crate) struct Service<S> {
    pub(super) app: Arc<App<S>>,
    /// The error if the sender of a batch or stream may not override limits.
    pub(super) override_admitted: Result<(), Refusal>,
}

impl<S: ServedStore> Service<S> {
    pub(crate) const fn new(app: Arc<App<S>>) -> Self {
        Self {
            app,
            // Single requests are admitted one by one.
            override_admitted: Ok(()),
        }
    }

    /// Returns the name of the sender of `request`, if it has the permission.
    fn admit<T>(&self, request: &Request<T>, power: Power) -> Result<&str, Refusal> {
        let peer = request.extensions().get::<Peer>();
        let authorization = request.metadata().get("authorization");
        let authorization = authorization.map(|value| value.as_encoded_bytes());
        let admitted = self.app.callers.admit(peer, authorization, power)?;
        if admitted.is_by_place && request.metadata().contains_key("origin") {
            return Err(Denied::Forbidden("web pages may not ask for this".to_owned()).into());
        }
        Ok(admitted.name)
    }

    pub(super) fn is_loaded(&self) -> Result<(), Refusal> {
        match self.app.is_loaded() {
            true => Ok(()),
            false => Err(Refusal::no_rules()),
        }
    }

    /// The same service, for requests of the sender of `request`.
    fn of<T>(&self, request: &Request<T>) -> Self {
        Self {
            app: Arc::clone(&self.app),
            override_admitted: self.admit(request, Power::Override).map(drop),
        }
    }
}

/// The answer to `check`, decided `at` a time.
pub(super) fn respond(
    ruling: &Ruling<'_>,
    check: &v1::CheckRequest,
    at: Timestamp,
) -> v1::CheckResponse {
    let hits = check.descriptors.iter().map(|descriptor| descriptor.hits);
    let is_peek = { hits }.all(|hits| hits == Some(0));
    let mut response = answer::check(ruling.decision, check.statuses, is_peek);
    // It made sense when it was asked.
    if let (true, Ok(question)) = (check.standing, asked(check)) {
        let views = question.views(1);
        let asking = question.check(&views);
        let standing = answer::standing(&ruling.policies(), ruling.decision, &asking, at);
        response.standing = Some(standing);
    }
    response
}

/// Parses `check` into a question.
pub(super) fn asked(check: &v1::CheckRequest) -> Result<Question<'_>, Refusal> {
    let question = Question::new(Place::Alone, &check.domain, &check.descriptors)?;
    Ok(question.waiting(check.wait_ms_max))
}

#[tonic::async_trait]
impl<S: ServedStore> RateLimiterService for Service<S> {
    type CheckStreamStream = Answers;

    async fn check(
        &self,
        request: Request<v1::CheckRequest>,
    ) -> Result<Response<v1::CheckResponse>, Status> {
        let check = request.get_ref();
        let question = asked(check)?;
        if question.has_override() {
            self.admit(&request, Power::Override)?;
        }
        self.is_loaded()?;
        let views = question.views(1);
        let asking = question.check(&views);
        let now = self.app.limiter.clock().now();
        let respond = |ruling: &Ruling<'_>| respond(ruling, check, now);
        let response = self.app.check(&asking, now, respond).await;
        Ok(Response::new(response))
    }

    async fn check_batch(
        &self,
        request: Request<v1::CheckBatchRequest>,
    ) -> Result<Response<v1::CheckBatchResponse>, Status> {
        let service = self.of(&request);
        let checks = &request.get_ref().checks;
        let room = self.app.long_answers.room(checks.len());
        let room = room.map_err(Refusal::from)?;
        let results = service.decide(checks).await?;
        let mut response = Response::new(v1::CheckBatchResponse { results });
        if let Some(room) = room {
            response.extensions_mut().insert(AnswerRoom::new(room));
        }
        Ok(response)
    }

    async fn check_stream(
        &self,
        request: Request<Streaming<v1::CheckStreamRequest>>,
    ) -> Result<Response<Answers>, Status> {
        let service = self.of(&request);
        Ok(Response::new(answers(service, request.into_inner())))
    }

    async fn peek(
        &self,
        request: Request<v1::PeekRequest>,
    ) -> Result<Response<v1::PeekResponse>, Status> {
        let asked = request.get_ref();
        let question = Question::new(Place::Alone, &asked.domain, &asked.descriptors)?;
        let question = question.waiting(asked.wait_ms_max);
        if question.has_override() {
            self.admit(&request, Power::Override)?;
        }
        self.is_loaded()?;
        let views = question.views(0);
        let (decision, would_allow) = self.app.limiter.peek(&question.check(&views)).await;
        Ok(Response::new(v1::PeekResponse {
            decision: answer::word(would_allow).into(),
            limit: answer::binding(&decision, true),
            degraded: decision.is_degraded(),
            statuses: answer::statuses(&decision),
        }))
    }

    async fn acquire(
        &self,
        request: Request<v1::AcquireRequest>,
    ) -> Result<Response<v1::AcquireResponse>, Status> {
        let caller = self.admit(&request, Power::Hold)?;
        let asked = request.get_ref();
        let question = Question::new(Place::Alone, &asked.domain, &asked.descriptors)?;
        let question = question.without_overrides()?;
        let question = question.waiting(asked.wait_ms_max);
        let key = key(&asked.idempotency_key)?;
        self.is_loaded()?;
        let views = question.views(1);
        let check = question.check(&views);
        let now = self.app.limiter.clock().now();
        let acquired = self.app.limiter.caller(caller).acquire(&check, key).await;
        let acquired = acquired.map_err(Refusal::of_hold("idempotency_key"))?;
        let (permit, expires_after_ms) = match acquired.permit {
            Some(Held {
                token,
                expires_after,
            }) => (token, expires_after.as_millis_ceil()),
            None => (String::new(), 0),
        };
        let decision = answer::check(&acquired.decision, false, false);
        let standing = || answer::standing(&acquired.policies, &acquired.decision, &check, now);
        Ok(Response::new(v1::AcquireResponse {
            standing: asked.standing.then(standing),
            decision: decision.decision,
            limit: decision.limit,
            delay_ms: decision.delay_ms,
            degraded: decision.degraded,
            permit,
            expires_after_ms,
            repeated_before: acquired.is_repeat,
        }))
    }

    async fn release(
        &self,
        request: Request<v1::ReleaseRequest>,
    ) -> Result<Response<v1::ReleaseResponse>, Status> {
        let caller = self.admit(&request, Power::Hold)?;
        let released = self
            .app
            .limiter
            .caller(caller)
            .release(&request.get_ref().permit)
            .await;
        let released = released.map_err(Refusal::of_hold("permit"))?;
        Ok(Response::new(v1::ReleaseResponse {
            was_held: released.was_held,
        }))
    }

    async fn renew(
        &self,
        request: Request<v1::RenewRequest>,
    ) -> Result<Response<v1::RenewResponse>, Status> {
        let caller = self.admit(&request, Power::Hold)?;
        let held = self
            .app
            .limiter
            .caller(caller)
            .renew(&request.get_ref().permit)
            .await;
        let held = held.map_err(Refusal::of_hold("permit"))?;
        Ok(Response::new(v1::RenewResponse {
            expires_after_ms: held.expires_after.as_millis_ceil(),
        }))
    }

    async fn reserve(
        &self,
        request: Request<v1::ReserveRequest>,
    ) -> Result<Response<v1::ReserveResponse>, Status> {
        let caller = self.admit(&request, Power::Hold)?;
        let asked = request.get_ref();
        let question = Question::new(Place::Alone, &asked.domain, &asked.descriptors)?;
        let question = question.without_overrides()?;
        let question = question.waiting(asked.wait_ms_max);
        let (hits, ttl, key) = (
            reserved_hits(asked.hits)?,
            ttl(asked.ttl_ms)?,
            key(&asked.idempotency_key)?,
        );
        self.is_loaded()?;
        let views = question.views(hits);
        let reserve = Reserve {
            check: question.check(&views),
            hits: asked.hits,
            fixed: &question.own_hits(),
            ttl,
            key,
        };
        let reserved = self.app.limiter.caller(caller).reserve(&reserve).await;
        let reserved = reserved.map_err(Refusal::of_hold("idempotency_key"))?;
        let (reservation, expires_after_ms) = match reserved.reservation {
            Some(Reservation {
                token,
                expires_after,
            }) => (token, expires_after.as_millis_ceil()),
            None => (String::new(), 0),
        };
        let decision = answer::check(&reserved.decision, false, false);
        Ok(Response::new(v1::ReserveResponse {
            decision: decision.decision,
            limit: decision.limit,
            delay_ms: decision.delay_ms,
            degraded: decision.degraded,
            reservation,
            expires_after_ms,
            repeated_before: reserved.is_repeat,
        }))
    }

    async fn commit(
        &self,
        request: Request<v1::CommitRequest>,
    ) -> Result<Response<v1::CommitResponse>, Status> {
        let caller = self.admit(&request, Power::Hold)?;
        let v1::CommitRequest { reservation, hits } = request.get_ref();
        let settled = self
            .app
            .limiter
            .caller(caller)
            .commit(reservation, *hits)
            .await;
        let settled = settled.map_err(Refusal::of_hold("reservation"))?;
        let (limits, limits_gone) = counts(&settled);
        Ok(Response::new(v1::CommitResponse {
            given_back: settled.given_back,
            limits,
            limits_gone,
            repeated_before: settled.is_repeat,
        }))
    }

    async fn cancel(
        &self,
        request: Request<v1::CancelRequest>,
    ) -> Result<Response<v1::CancelResponse>, Status> {
        let caller = self.admit(&request, Power::Hold)?;
        let reservation = &request.get_ref().reservation;
        let settled = self.app.limiter.caller(caller).cancel(reservation).await;
        let settled = settled.map_err(Refusal::of_hold("reservation"))?;
        let (limits, limits_gone) = counts(&settled);
        Ok(Response::new(v1::CancelResponse {
            given_back: settled.given_back,
            limits,
            limits_gone,
            repeated_before: settled.is_repeat,
        }))
    }

    async fn refund(
        &self,
        request: Request<v1::RefundRequest>,
    ) -> Result<Response<v1::RefundResponse>, Status> {
        let caller = self.admit(&request, Power::Refund)?;
        let asked = request.get_ref();
        let question = Question::new(Place::Alone, &asked.domain, &asked.descriptors)?;
        let question = question.without_overrides()?;
        if let Some(number) = question.zero_hits() {
            return Err(no_refund(number).into());
        }
        let key = key(&asked.idempotency_key)?;
        self.is_loaded()?;
        let views = question.views(1);
        let decision = self
            .app
            .limiter
            .caller(caller)
            .refund(&question.check(&views), key)
            .await;
        let decision = decision.map_err(Refusal::of_hold("idempotency_key"))?;
        Ok(Response::new(v1::RefundResponse {
            limit: answer::binding(&decision, true),
            statuses: answer::statuses(&decision),
            degraded: decision.is_degraded(),
        }))
    }
}

fn counts(settled: &Settled) -> (u32, u32) {
    let count = |limits: usize| u32::try_from(limits).unwrap_or(u32::MAX);
    (count(settled.limits), count(settled.limits_gone))
}
