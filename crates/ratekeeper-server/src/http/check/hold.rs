//! Permits, reservations, refunds and peeks: `ratekeeper.v1` as JSON.

use axum::Json;
use axum::response::{IntoResponse, Response};
use ratekeeper_core::Micros;
use ratekeeper_limiter::{HoldError, Reserve, Settled};
use serde::Serialize;

use super::ApiError;
use super::answer::Answer;
use super::asked::Asked;
use super::bodies::{OfPermit, ToAcquire, ToCancel, ToCommit, ToRefund, ToReserve};
use super::question::{self, Question};
use super::standing::StandingAnswer;
use crate::callers::Power;
use crate::store::ServedStore;
use crate::v1::{Refusal, key, no_refund, reserved_hits, ttl};

type Answered = Result<Response, ApiError>;

fn refused(field: &'static str) -> impl Fn(HoldError) -> ApiError {
    move |error| Refusal::of_hold(field)(error).into()
}

fn answer(body: impl Serialize) -> Answered {
    Ok(Json(body).into_response())
}

/// `/v1/peek`: how a request stands. Takes nothing.
pub(in crate::http) async fn peek<S: ServedStore>(asked: Asked<S>) -> Answered {
    let question: Question<'_> = question::parse(asked.json()?)?;
    question.validate(format_args!(""))?;
    if question.standing {
        let message = "a peek has none; leave it out";
        return Err(ApiError::invalid("standing", message));
    }
    asked.admit_override(&question)?;
    asked.is_loaded()?;
    let entries = question.entries();
    let descriptors = question.descriptors(&entries, 0);
    let (decision, would_allow) = asked.app.limiter.peek(&question.check(&descriptors)).await;
    answer(Answer::of_peek(&decision, would_allow))
}

#[derive(Serialize)]
struct Acquired<'a> {
    #[serde(flatten)]
    answer: Answer<'a>,
    /// Absent where nothing is held.
    #[serde(skip_serializing_if = "Option::is_none")]
    permit: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    expires_after_ms: Option<u64>,
    repeated_before: bool,
}

/// `/v1/acquire`: decides, and takes a permit of each concurrency limit.
pub(in crate::http) async fn acquire<S: ServedStore>(asked: Asked<S>) -> Answered {
    let (caller, body) = asked.admitted(Power::Hold)?;
    let wanted: ToAcquire<'_> = question::parse(body)?;
    let has_standing = wanted.standing;
    let (question, named) = wanted.split();
    question.validate(format_args!(""))?;
    question.refuse_overrides()?;
    let key = key(&named)?;
    asked.is_loaded()?;
    let entries = question.entries();
    let descriptors = question.descriptors(&entries, 1);
    let check = question.check(&descriptors);
    let now = asked.app.limiter.clock().now();
    let acquired = asked.app.limiter.caller(caller).acquire(&check, key).await;
    let acquired = acquired.map_err(refused("idempotency_key"))?;
    let permit = acquired.permit.as_ref();
    let standing = || StandingAnswer::new(&acquired.policies, &acquired.decision, &check, now);
    answer(Acquired {
        answer: Answer::new(&acquired.decision, false).with(has_standing.then(standing)),
        permit: permit.map(|permit| &*permit.token),
        expires_after_ms: permit.map(|permit| permit.expires_after.as_millis_ceil()),
        repeated_before: acquired.is_repeat,
    })
}

#[derive(Serialize)]
struct Released {
    was_held: bool,
}

/// `/v1/release`: gives a permit back.
pub(in crate::http) async fn release<S: ServedStore>(asked: Asked<S>) -> Answered {
    let (caller, body) = asked.admitted(Power::Hold)?;
    let OfPermit { permit } = question::parse(body)?;
    let released = asked.app.limiter.caller(caller).release(&permit).await;
    let was_held = released.map_err(refused("permit"))?.was_held;
    answer(Released { was_held })
}

#[derive(Serialize)]
struct Renewed {
    expires_after_ms: u64,
}

/// `/v1/renew`: moves a permit's deadline on.
pub(in crate::http) async fn renew<S: ServedStore>(asked: Asked<S>) -> Answered {
    let (caller, body) = asked.admitted(Power::Hold)?;
    let OfPermit { permit } = question::parse(body)?;
    let held = asked.app.limiter.caller(caller).renew(&permit).await;
    let expires_after = held.map_err(refused("permit"))?.expires_after;
    answer(Renewed {
        expires_after_ms: expires_after.as_millis_ceil(),
    })
}

#[derive(Serialize)]
struct Reserved<'a> {
    #[serde(flatten)]
    answer: Answer<'a>,
    /// Absent if the request was denied.
    #[serde(skip_serializing_if = "Option::is_none")]
    reservation: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    expires_after_ms: Option<u64>,
    repeated_before: bool,
}

/// `/v1/reserve`: takes the most that a request may turn out to cost.
pub(in crate::http) async fn reserve<S: ServedStore>(asked: Asked<S>) -> Answered {
    let (caller, body) = asked.admitted(Power::Hold)?;
    let wanted: ToReserve<'_> = question::parse(body)?;
    let (hits, ttl): (_, Micros) = (wanted.hits, ttl(wanted.ttl_ms)?);
    let cost = reserved_hits(hits)?;
    let (question, named) = wanted.split();
    question.validate(format_args!(""))?;
    question.refuse_overrides()?;
    let key = key(&named)?;
    asked.is_loaded()?;
    let entries = question.entries();
    let descriptors = question.descriptors(&entries, cost);
    let reserve = Reserve {
        check: question.check(&descriptors),
        hits,
        fixed: &question.own_hits(),
        ttl,
        key,
    };
    let reserved = asked.app.limiter.caller(caller).reserve(&reserve).await;
    let reserved = reserved.map_err(refused("idempotency_key"))?;
    let reservation = reserved.reservation.as_ref();
    let left = |held: &ratekeeper_limiter::Reservation| held.expires_after.as_millis_ceil();
    answer(Reserved {
        answer: Answer::new(&reserved.decision, false),
        reservation: reservation.map(|reservation| &*reservation.token),
        expires_after_ms: reservation.map(left),
        repeated_before: reserved.is_repeat,
    })
}

#[derive(Serialize)]
struct Concluded {
    given_back: u64,
    limits: usize,
    limits_gone: usize,
    repeated_before: bool,
}

fn concluded(settled: Result<Settled, HoldError>) -> Answered {
    let settled = settled.map_err(refused("reservation"))?;
    answer(Concluded {
        given_back: settled.given_back,
        limits: settled.limits,
        limits_gone: settled.limits_gone,
        repeated_before: settled.is_repeat,
    })
}

/// `/v1/commit`: so much was needed, the rest is given back.
pub(in crate::http) async fn commit<S: ServedStore>(asked: Asked<S>) -> Answered {
    let (caller, body) = asked.admitted(Power::Hold)?;
    let ToCommit { reservation, hits } = question::parse(body)?;
    concluded(
        asked
            .app
            .limiter
            .caller(caller)
            .commit(&reservation, hits)
            .await,
    )
}

/// `/v1/cancel`: gives back all that was reserved.
pub(in crate::http) async fn cancel<S: ServedStore>(asked: Asked<S>) -> Answered {
    let (caller, body) = asked.admitted(Power::Hold)?;
    let ToCancel { reservation } = question::parse(body)?;
    concluded(asked.app.limiter.caller(caller).cancel(&reservation).await)
}

/// `/v1/refund`: gives hits back without a reservation.
pub(in crate::http) async fn refund<S: ServedStore>(asked: Asked<S>) -> Answered {
    let (caller, body) = asked.admitted(Power::Refund)?;
    let (question, named) = question::parse::<ToRefund<'_>>(body)?.split();
    question.validate(format_args!(""))?;
    question.refuse_overrides()?;
    if let Some(number) = question.zero_hits() {
        return Err(no_refund(number).into());
    }
    let key = key(&named)?;
    asked.is_loaded()?;
    let entries = question.entries();
    let descriptors = question.descriptors(&entries, 1);
    let decision = asked
        .app
        .limiter
        .caller(caller)
        .refund(&question.check(&descriptors), key)
        .await;
    let decision = decision.map_err(refused("idempotency_key"))?;
    answer(Answer::new(&decision, true))
}
