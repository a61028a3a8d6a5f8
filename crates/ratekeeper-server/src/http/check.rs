//! Our own API over HTTP: checks here, what is held for a while in [`hold`].

mod answer;
mod asked;
mod bodies;
mod hold;
mod long;
mod object;
mod question;
mod standing;
mod strict;

use std::time::Instant;

use axum::Json;
use axum::body::Body;
use axum::extract::Query;
use axum::extract::rejection::QueryRejection;
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use http::header::{CONTENT_TYPE, RETRY_AFTER};
use ratekeeper_core::Timestamp;
use ratekeeper_limiter::{Check, Ruling, Waiting};
use ratekeeper_store::Answer::{Decided, Pending};
use serde::Deserialize;

use super::ApiError;
use crate::app::App;
use crate::store::ServedStore;
use answer::Answer;
use asked::Asked;
use long::LongBody;
use object::Object;
use question::{Question, Questions};
use standing::StandingAnswer;

pub(crate) use asked::is_json;
pub(super) use hold::{acquire, cancel, commit, peek, refund, release, renew, reserve};
pub(crate) use long::{LongAnswers, NoRoom};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Options {
    /// True if a denial is a 429 instead of a 200.
    #[serde(default)]
    status: bool,
    /// True if a descriptor that no rule matches is a 400 instead of allowed.
    #[serde(default)]
    strict: bool,
}

/// One check.
pub(super) async fn one<S: ServedStore>(
    options: Result<Query<Options>, QueryRejection>,
    asked: Asked<S>,
) -> Result<Response, ApiError> {
    let Query(options) =
        options.map_err(|error| ApiError::invalid("?status", error.body_text()))?;
    let question: Question<'_> = question::parse(asked.json()?)?;
    question.validate(format_args!(""))?;
    asked.admit_override(&question)?;
    asked.is_loaded()?;
    let app = &asked.app;
    let entries = question.entries();
    let descriptors = question.descriptors(&entries, 1);
    let check = question.check(&descriptors);
    if options.strict {
        let snapshot = app.limiter.snapshot();
        strict::refuse_unmatched(snapshot.rules(), &check, asked.names())?;
    }
    let now = app.limiter.clock().now();
    let read = |ruling: &Ruling<'_>| {
        let answer = answer(&question, ruling, now);
        respond(&answer, options.status)
    };
    Ok(app.check(&check, now, read).await)
}

/// Up to a thousand checks, each decided by itself; none is if one of them makes no sense.
pub(super) async fn many<S: ServedStore>(asked: Asked<S>) -> Result<Response, ApiError> {
    let questions: Questions<'_> = question::parse(asked.json()?)?;
    questions.validate()?;
    if let Some(question) = questions.checks.iter().find(|check| check.has_override()) {
        asked.admit_override(question)?;
    }
    asked.is_loaded()?;
    let room = asked.app.long_answers.room(questions.checks.len())?;
    let text = answer_all(&asked.app, &questions.checks).await;
    let body = match room {
        None => Body::from(text),
        Some(room) => Body::new(LongBody::new(text, room)),
    };
    Ok(([(CONTENT_TYPE, "application/json")], body).into_response())
}

/// Explains on the admin listener how one check would be decided. Takes nothing.
pub(crate) async fn explain<S: ServedStore>(asked: Asked<S>) -> Result<Response, ApiError> {
    let question: Question<'_> = question::parse(asked.json()?)?;
    question.validate(format_args!(""))?;
    let entries = question.entries();
    let descriptors = question.descriptors(&entries, 1);
    // As most edges ask: without a caller that could be made to wait.
    let check = Check {
        waiting: Waiting::Cannot,
        ..question.check(&descriptors)
    };
    let explanation = asked.app.limiter.explain(&check).await;
    Ok(Json(explanation).into_response())
}

/// The answers to all checks, as JSON. Sends all questions before waiting for any; an immediate
/// decision is written at once, from where it lies in memory.
async fn answer_all<S: ServedStore>(app: &App<S>, questions: &[Object<Question<'_>>]) -> Vec<u8> {
    let start = Instant::now();
    let now = app.limiter.clock().now();
    let mut written = Vec::new();
    let ask = |question: &Object<Question<'_>>| {
        let entries = question.entries();
        let descriptors = question.descriptors(&entries, 1);
        app.limiter
            .ask(&question.check(&descriptors), now, |ruling| {
                let from = written.len();
                answer(question, ruling, now).write(&mut written);
                from..written.len()
            })
    };
    let answers: Vec<_> = questions.iter().map(ask).collect();
    let mut text = Vec::with_capacity(written.len() + answers.len() + 16);
    for (question, answered) in questions.iter().zip(answers) {
        text.extend_from_slice(if text.is_empty() {
            b"{\"results\":["
        } else {
            b","
        });
        match answered {
            Decided(range) => text.extend_from_slice(&written[range]),
            Pending(pending) => {
                let write = |ruling: &Ruling<'_>| answer(question, ruling, now).write(&mut text);
                app.limiter.finish(pending, write).await;
            }
        }
    }
    text.extend_from_slice(b"]}");
    app.durations.add(start.elapsed());
    text
}

/// The answer to `question`, decided `at` a time.
fn answer<'a>(question: &Question<'_>, ruling: &Ruling<'a>, at: Timestamp) -> Answer<'a> {
    let standing = question.standing.then(|| {
        let entries = question.entries();
        let descriptors = question.descriptors(&entries, 1);
        let check = question.check(&descriptors);
        StandingAnswer::new(&ruling.policies(), ruling.decision, &check, at)
    });
    Answer::new(ruling.decision, question.is_peek()).with(standing)
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
