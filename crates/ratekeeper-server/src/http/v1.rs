//! `ratekeeper.v1` as JSON: each route reads its body, calls a handler, writes its answer.

mod long_body;
mod received;
mod write;

use axum::Json;
use axum::body::Body;
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use http::header::{CONTENT_TYPE, RETRY_AFTER};
use serde::Deserialize;
use utoipa::{IntoParams, ToSchema};

use crate::http::error::ApiError;
use crate::http::query::Given;
use crate::protocol::v1::{
    AcquireRequest, Batch, BatchRequest, CHECKS_MAX, CancelRequest, CheckAnswer, CheckRequest,
    CommitRequest, HeldAnswer, LimitAnswer, LimitRequest, LimitsAnswer, LimitsRequest,
    PermitRequest, RefundRequest, Refusal, Released, Renewed, ReserveRequest, Settlement,
    Unmatched,
};
use long_body::LongBody;
use write::{write_answer, write_held};

pub(crate) use received::Received;

type Answered = Result<Response, ApiError>;

#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(super) struct CheckOptions {
    /// True if a denial is a 429 instead of a 200.
    #[serde(default)]
    status: bool,
    /// True if a descriptor that no rule matches is a 400 instead of allowed.
    #[serde(default)]
    strict: bool,
}

/// The decisions, in the order of the requests.
#[derive(ToSchema)]
#[schema(as = Decisions)]
#[expect(
    dead_code,
    reason = "its text is put together of answers that are written as they come"
)]
pub(super) struct BatchAnswer<'a> {
    results: Vec<CheckAnswer<'a>>,
}

/// `/v1/check`: one check.
#[utoipa::path(
    post,
    path = "/v1/check",
    tag = "checks",
    params(CheckOptions),
    request_body = CheckRequest,
    responses(
        (status = 200, description = "The decision", body = CheckAnswer),
        (status = 429, description = "A denial, with `?status=true`", body = CheckAnswer)
    )
)]
pub(super) async fn check(Given(options): Given<CheckOptions>, received: Received) -> Answered {
    let mut body: CheckRequest<'_> = received.parse()?;
    body.unfold()?;
    let unmatched = match options.strict {
        true => Unmatched::Refused,
        false => Unmatched::Allowed,
    };
    let respond = |answer: &CheckAnswer<'_>| {
        let mut response = json(|out| write_answer(answer, out));
        if options.status && !answer.allowed {
            *response.status_mut() = StatusCode::TOO_MANY_REQUESTS;
            if let Some(wait) = answer.by.limit().and_then(|limit| limit.retry_after) {
                let seconds = wait.as_secs_ceil();
                response.headers_mut().insert(RETRY_AFTER, seconds.into());
            }
        }
        response
    };
    received.api().check(&body, unmatched, respond).await
}

/// About as many bytes as an answer to a check of one limit has: a long answer that grows by and by is copied again and again.
const ANSWER_BYTES: usize = 384;

/// `/v1/checks`: up to a thousand checks.
#[utoipa::path(
    post,
    path = "/v1/checks",
    tag = "checks",
    request_body = BatchRequest,
    responses((status = 200, description = "The decisions", body = BatchAnswer))
)]
pub(super) async fn checks(received: Received) -> Answered {
    let mut body: BatchRequest<'_> = received.parse()?;
    for (number, check) in body.checks.iter_mut().enumerate() {
        check.0.unfold().map_err(|refusal| Refusal {
            field: format!("checks[{number}].{}", refusal.field),
            ..refusal
        })?;
    }
    let checks = body.checks.len().min(CHECKS_MAX);
    let mut written = Vec::with_capacity(checks * ANSWER_BYTES);
    let write = |_: &CheckRequest<'_>, answer: &CheckAnswer<'_>| {
        let from = written.len();
        write_answer(answer, &mut written);
        from..written.len()
    };
    let Batch { results, room } = received.api().check_all(&body.checks, write).await?;
    let mut text = Vec::with_capacity(written.len() + results.len() + 16);
    // Late answers were written after those of later checks.
    for result in results {
        text.extend_from_slice(if text.is_empty() {
            b"{\"results\":["
        } else {
            b","
        });
        text.extend_from_slice(&written[result]);
    }
    text.extend_from_slice(b"]}");
    let body = match room {
        None => Body::from(text),
        Some(room) => Body::new(LongBody::new(text, room)),
    };
    Ok(([(CONTENT_TYPE, "application/json")], body).into_response())
}

/// `/v1/limit`: an identifier, and a limit or the id of a rule.
#[utoipa::path(
    post,
    path = "/v1/limit",
    tag = "checks",
    request_body = LimitRequest,
    responses((status = 200, description = "The decision", body = LimitAnswer))
)]
pub(super) async fn limit(received: Received) -> Answered {
    let body: LimitRequest<'_> = received.parse()?;
    Ok(Json(received.api().limit(&body).await?).into_response())
}

/// `/v1/limits`: up to a thousand of them.
#[utoipa::path(
    post,
    path = "/v1/limits",
    tag = "checks",
    request_body = LimitsRequest,
    responses((status = 200, description = "The decisions", body = LimitsAnswer))
)]
pub(super) async fn limits(received: Received) -> Answered {
    let body: LimitsRequest<'_> = received.parse()?;
    let results = received.api().limit_all(&body.limits).await?;
    Ok(Json(LimitsAnswer { results }).into_response())
}

/// Explains on the admin listener how one check would be decided.
pub(crate) async fn explain(received: Received) -> Answered {
    let mut body: CheckRequest<'_> = received.parse()?;
    body.unfold()?;
    let explanation = received.api().explain((&body).into()).await?;
    Ok(Json(explanation).into_response())
}

/// `/v1/peek`: the state of a request's limits.
#[utoipa::path(
    post,
    path = "/v1/peek",
    tag = "checks",
    request_body = CheckRequest,
    responses((status = 200, description = "The decision on one hit now", body = CheckAnswer))
)]
pub(super) async fn peek(received: Received) -> Answered {
    let mut body: CheckRequest<'_> = received.parse()?;
    body.unfold()?;
    if body.standing {
        let message = "a peek has none; leave it out";
        return Err(ApiError::invalid("standing", message));
    }
    if !body.idempotency_key.is_empty() {
        let message = "a peek charges nothing; leave it out";
        return Err(ApiError::invalid("idempotency_key", message));
    }
    received.api().peek((&body).into(), answer).await
}

/// `/v1/acquire`: decides, and takes a permit of each concurrency limit.
#[utoipa::path(
    post,
    path = "/v1/acquire",
    tag = "permits",
    request_body = AcquireRequest,
    responses((status = 200, description = "The decision and the permit", body = HeldAnswer))
)]
pub(super) async fn acquire(received: Received) -> Answered {
    let holder = received.api().holder()?;
    let body: AcquireRequest<'_> = received.parse()?;
    let respond = |held: &HeldAnswer<'_>| json(|out| write_held(held, out));
    Ok(holder.acquire(&body, respond).await?)
}

/// `/v1/release`: gives a permit back.
#[utoipa::path(
    post,
    path = "/v1/release",
    tag = "permits",
    request_body = PermitRequest,
    responses((status = 200, description = "It is released", body = Released))
)]
pub(super) async fn release(received: Received) -> Answered {
    let holder = received.api().holder()?;
    let PermitRequest { permit } = received.parse()?;
    let released = holder.release(&permit).await?;
    Ok(Json(released).into_response())
}

/// `/v1/renew`: extends a permit's deadline.
#[utoipa::path(
    post,
    path = "/v1/renew",
    tag = "permits",
    request_body = PermitRequest,
    responses((status = 200, description = "It is held for longer", body = Renewed))
)]
pub(super) async fn renew(received: Received) -> Answered {
    let holder = received.api().holder()?;
    let PermitRequest { permit } = received.parse()?;
    let renewed = holder.renew(&permit).await?;
    Ok(Json(renewed).into_response())
}

/// `/v1/reserve`: charges the most that a request may turn out to cost.
#[utoipa::path(
    post,
    path = "/v1/reserve",
    tag = "reservations",
    request_body = ReserveRequest,
    responses((status = 200, description = "The decision and the reservation", body = HeldAnswer))
)]
pub(super) async fn reserve(received: Received) -> Answered {
    let holder = received.api().holder()?;
    let body: ReserveRequest<'_> = received.parse()?;
    let respond = |held: &HeldAnswer<'_>| json(|out| write_held(held, out));
    Ok(holder.reserve(&body, respond).await?)
}

/// `/v1/commit`: charges the actual cost, and gives the rest back.
#[utoipa::path(
    post,
    path = "/v1/commit",
    tag = "reservations",
    request_body = CommitRequest,
    responses((status = 200, description = "It is settled", body = Settlement))
)]
pub(super) async fn commit(received: Received) -> Answered {
    let holder = received.api().holder()?;
    let CommitRequest { reservation, hits } = received.parse()?;
    let settled = holder.commit(&reservation, hits).await?;
    Ok(Json(settled).into_response())
}

/// `/v1/cancel`: gives back everything that was reserved.
#[utoipa::path(
    post,
    path = "/v1/cancel",
    tag = "reservations",
    request_body = CancelRequest,
    responses((status = 200, description = "It is settled", body = Settlement))
)]
pub(super) async fn cancel(received: Received) -> Answered {
    let holder = received.api().holder()?;
    let CancelRequest { reservation } = received.parse()?;
    let settled = holder.cancel(&reservation).await?;
    Ok(Json(settled).into_response())
}

/// `/v1/refund`: gives hits back without a reservation.
#[utoipa::path(
    post,
    path = "/v1/refund",
    tag = "checks",
    request_body = RefundRequest,
    responses((status = 200, description = "The hits are given back", body = CheckAnswer))
)]
pub(super) async fn refund(received: Received) -> Answered {
    let refunder = received.api().refunder()?;
    let body: RefundRequest<'_> = received.parse()?;
    Ok(refunder.refund(&body, answer).await?)
}

fn answer(answer: &CheckAnswer<'_>) -> Response {
    json(|out| write_answer(answer, out))
}

fn json(write: impl FnOnce(&mut Vec<u8>)) -> Response {
    let mut text = Vec::with_capacity(256);
    write(&mut text);
    ([(CONTENT_TYPE, "application/json")], text).into_response()
}
