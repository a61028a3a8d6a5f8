//! Envoy's rate limit protocol, over gRPC or `/json`.

mod headers;
mod metadata;
mod needs;
mod plain;
mod request;
mod response;

use ratekeeper_limiter::{Check, Pending, Policies, Ruling};
use ratekeeper_proto::envoy::service::ratelimit::v3::rate_limit_response::{
    Code, DescriptorStatus,
};
use ratekeeper_proto::envoy::service::ratelimit::v3::{RateLimitRequest, RateLimitResponse};
use ratekeeper_store::Answer;

pub(crate) use needs::RequiredPermissions;
pub(crate) use plain::read as read_plain;

use crate::app::{App, NoRules};
use crate::config::DESCRIPTORS_MAX;
use crate::logs::denials::CheckOrigin;
use crate::logs::unreadable::Defect;
use ratekeeper_stores::StoresTicket;

/// The reason a request gets no decision.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub(crate) enum Refusal {
    /// The request makes no sense.
    #[error("{0}")]
    Invalid(String),
    /// The request has more than is read; its own sender may have caused it.
    #[error("{0}")]
    OutOfBounds(String),
    /// There are no rules to decide by.
    #[error("no rate limit configuration loaded")]
    NoRules,
    /// There are none for its domain, and this node is well.
    #[error("{0}")]
    NoRulesOf(NoRules),
}

impl From<NoRules> for Refusal {
    fn from(lack: NoRules) -> Self {
        match lack {
            NoRules::AtAll => Self::NoRules,
            NoRules::Of(_) => Self::NoRulesOf(lack),
        }
    }
}

/// Decides `request`.
///
/// # Errors
/// See [`Refusal`]. No counter is touched then.
pub(crate) async fn decide(
    app: &App,
    request: &RateLimitRequest,
    origin: CheckOrigin<'_>,
) -> Result<RateLimitResponse, Refusal> {
    match ask(app, request, origin) {
        Answer::Decided(Err(refusal)) => refuse(app, origin.protocol, request, refusal),
        Answer::Decided(response) => response,
        Answer::Pending(pending) => Ok(finish(app, Some(request), origin, pending).await),
    }
}

/// Answers `request`, which was refused: with a denial if its client may have caused that, as far as the settings say so.
///
/// # Errors
/// See [`Refusal`].
#[cold]
pub(crate) fn refuse(
    app: &App,
    protocol: &'static str,
    request: &RateLimitRequest,
    refusal: Refusal,
) -> Result<RateLimitResponse, Refusal> {
    let Refusal::OutOfBounds(why) = &refusal else {
        return Err(refusal);
    };
    match app.unreadable.judge(protocol, Defect::OutOfBounds, why) {
        Some(passes) => Ok(unread(app, passes, request.descriptors.len())),
        None => Err(refusal),
    }
}

/// The answer to a request of so many descriptors, none of which was decided.
pub(crate) fn unread(app: &App, passes: bool, descriptors: usize) -> RateLimitResponse {
    let code = |passes| match passes {
        true => Code::Ok.into(),
        false => Code::OverLimit.into(),
    };
    let status = DescriptorStatus {
        code: code(passes),
        ..Default::default()
    };
    RateLimitResponse {
        // As for any other denial, all that shadow mode changes is the code of the whole.
        overall_code: code(passes || app.limiter.snapshot().modes().shadow),
        statuses: vec![status; descriptors.min(DESCRIPTORS_MAX)],
        ..Default::default()
    }
}

/// Decides `request` without waiting, or refuses it as [`decide`] does. A plain function, so that the
/// state it holds does not move; the result is inside of the answer, because a response is large too.
pub(crate) fn ask<'a>(
    app: &App,
    request: &'a RateLimitRequest,
    origin: CheckOrigin<'_>,
) -> Answer<Pending<'a, StoresTicket>, Result<RateLimitResponse, Refusal>> {
    // Envoy cannot hold a request back, which a check does not expect either.
    let mut check = Check::new(&request.domain);
    if let Err(refusal) = request::read(request, &mut check) {
        return Answer::Decided(Err(refusal));
    }
    ask_check(app, &mut check, Some(request), origin)
}

/// Decides `check`, as [`ask`] does; `request` is what it was read from, for metadata.
pub(crate) fn ask_check<'a>(
    app: &App,
    check: &mut Check<'a>,
    request: Option<&RateLimitRequest>,
    origin: CheckOrigin<'_>,
) -> Answer<Pending<'a, StoresTicket>, Result<RateLimitResponse, Refusal>> {
    if let Err(lack) = app.require_rules([check.domain]) {
        return Answer::Decided(Err(lack.into()));
    }
    let now = app.limiter.clock().now();
    app.ask(check, now, origin, |ruling| {
        Ok(answer(app, request, ruling))
    })
}

/// Waits for the answer to a request that was asked about.
pub(crate) async fn finish(
    app: &App,
    request: Option<&RateLimitRequest>,
    origin: CheckOrigin<'_>,
    pending: Pending<'_, StoresTicket>,
) -> RateLimitResponse {
    let read = |ruling: &Ruling<'_>| answer(app, request, ruling);
    app.finish(pending, origin, read).await
}

fn answer(app: &App, request: Option<&RateLimitRequest>, ruling: &Ruling<'_>) -> RateLimitResponse {
    let policies = match app.config.rls.draft_headers {
        true => ruling.policies(),
        false => Policies::new(),
    };
    let clock = app.limiter.clock();
    response::answer(&app.config.rls, request, ruling.decision, &policies, clock)
}
