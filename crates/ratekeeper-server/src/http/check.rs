//! `/v1/check` and `/v1/checks`: our own check API.

mod answer;
mod object;
mod question;

use std::sync::Arc;

use axum::Json;
use axum::body::Bytes;
use axum::extract::rejection::{BytesRejection, QueryRejection};
use axum::extract::{Query, State};
use axum::response::{IntoResponse, Response};
use http::header::{CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderMap, StatusCode};
use ratekeeper_limiter::{Check, Decision, Waiting};
use serde::{Deserialize, Serialize};

use super::ApiError;
use crate::app::App;
use crate::store::ServedStore;
use answer::Answer;
use question::{Question, Questions};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Options {
    /// Whether a denial is a 429 instead of a 200.
    #[serde(default)]
    status: bool,
}

/// One check.
pub(super) async fn one<S: ServedStore>(
    State(app): State<Arc<App<S>>>,
    options: Result<Query<Options>, QueryRejection>,
    headers: HeaderMap,
    body: Result<Bytes, BytesRejection>,
) -> Result<Response, ApiError> {
    let Query(options) =
        options.map_err(|error| ApiError::invalid("?status", error.body_text()))?;
    let body = json_body(&headers, body)?;
    let question: Question<'_> = question::parse(&body)?;
    question.validate("")?;
    if !app.is_loaded() {
        return Err(ApiError::no_rules());
    }
    let decision = ask(&app, &question).await;
    let answer = Answer::new(&decision, question.is_peek());
    Ok(respond(&answer, options.status))
}

#[derive(Serialize)]
struct Answers<'a> {
    results: Vec<Answer<'a>>,
}

/// Up to a thousand checks, each decided by itself; none is if one of them makes no sense.
pub(super) async fn many<S: ServedStore>(
    State(app): State<Arc<App<S>>>,
    headers: HeaderMap,
    body: Result<Bytes, BytesRejection>,
) -> Result<Response, ApiError> {
    let body = json_body(&headers, body)?;
    let questions: Questions<'_> = question::parse(&body)?;
    questions.validate()?;
    if !app.is_loaded() {
        return Err(ApiError::no_rules());
    }
    let mut decisions = Vec::with_capacity(questions.checks.len());
    for question in &questions.checks {
        decisions.push(ask(&app, question).await);
    }
    let answers = decisions.iter().zip(&questions.checks);
    let results = answers
        .map(|(decision, question)| Answer::new(decision, question.is_peek()))
        .collect();
    Ok(Json(Answers { results }).into_response())
}

/// How one check would be decided, as the admin listener tells it. Takes nothing.
pub(crate) async fn explain<S: ServedStore>(
    State(app): State<Arc<App<S>>>,
    headers: HeaderMap,
    body: Result<Bytes, BytesRejection>,
) -> Result<Response, ApiError> {
    let body = json_body(&headers, body)?;
    let question: Question<'_> = question::parse(&body)?;
    question.validate("")?;
    let entries = question.entries();
    let descriptors = question.descriptors(&entries);
    // As most edges ask: without a caller that could be made to wait.
    let check = Check {
        waiting: Waiting::Cannot,
        ..question.check(&descriptors)
    };
    let Some(explanation) = S::explain(&app.limiter, &check) else {
        let message = "the store of this service cannot be looked at";
        return Err(ApiError::other(
            StatusCode::NOT_IMPLEMENTED,
            "UNIMPLEMENTED",
            message,
        ));
    };
    Ok(Json(explanation).into_response())
}

async fn ask<S: ServedStore>(app: &App<S>, question: &Question<'_>) -> Decision {
    let entries = question.entries();
    let descriptors = question.descriptors(&entries);
    app.check(&question.check(&descriptors)).await
}

fn respond(answer: &Answer<'_>, by_status: bool) -> Response {
    let mut response = Json(answer).into_response();
    if by_status && answer.is_denial() {
        *response.status_mut() = StatusCode::TOO_MANY_REQUESTS;
        if let Some(seconds) = answer.retry_after_secs() {
            response.headers_mut().insert(RETRY_AFTER, seconds.into());
        }
    }
    response
}

fn json_body(headers: &HeaderMap, body: Result<Bytes, BytesRejection>) -> Result<Bytes, ApiError> {
    if headers.contains_key(CONTENT_TYPE) && !is_json(headers) {
        return Err(ApiError::not_json());
    }
    Ok(body?)
}

/// Whether the body is `application/json`, with whatever parameters.
pub(crate) fn is_json(headers: &HeaderMap) -> bool {
    let Some(content_type) = headers.get(CONTENT_TYPE) else {
        return false;
    };
    let essence = content_type
        .as_bytes()
        .split(|byte| *byte == b';')
        .next()
        .unwrap_or_default();
    essence
        .trim_ascii()
        .eq_ignore_ascii_case(b"application/json")
}
