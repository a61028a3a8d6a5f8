//! Envoy's rate limit protocol, whatever carries it: gRPC or `/json`.

mod constant;
mod headers;
mod metadata;
mod needs;
mod request;
mod response;

use ratekeeper_limiter::{Asked, Begun, Check, Decision, Descriptor, Policies, Waiting};
use ratekeeper_proto::envoy::service::ratelimit::v3::{RateLimitRequest, RateLimitResponse};

pub use constant::{ConstantAnswer, NoAnswer};
pub(crate) use needs::Needs;

use request::{Descriptors, Entries};

use crate::app::App;
use crate::store::ServedStore;

/// Why a request gets no decision.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub(crate) enum Refusal {
    /// The request makes no sense.
    #[error("{0}")]
    Invalid(String),
    /// There are no rules to decide by.
    #[error("no rate limit configuration loaded")]
    NoRules,
}

/// Decides `request`.
///
/// # Errors
/// See [`Refusal`]. No counter is touched then.
pub(crate) async fn decide<S: ServedStore>(
    app: &App<S>,
    request: &RateLimitRequest,
) -> Result<RateLimitResponse, Refusal> {
    match begin(app, request)? {
        Begun::Decided(response) => Ok(response),
        Begun::Asked(asked) => finish(app, request, asked).await,
    }
}

/// Asks about `request`, and does not wait. A plain function, so that what it holds lies still.
///
/// # Errors
/// Those of [`decide`].
pub(crate) fn begin<S: ServedStore>(
    app: &App<S>,
    request: &RateLimitRequest,
) -> Result<Begun<S::Ticket, RateLimitResponse>, Refusal> {
    let (mut entries, mut descriptors) = (Entries::new(), Descriptors::new());
    request::entries(request, &mut entries)?;
    request::descriptors(request, &entries, &mut descriptors)?;
    if !app.is_loaded() {
        return Err(Refusal::NoRules);
    }
    let check = check(request, &descriptors);
    Ok(app.begin(&check, |decision| answer(app, request, &check, decision)))
}

/// Waits for the answer to a request that was begun.
///
/// # Errors
/// Those of [`decide`].
pub(crate) async fn finish<S: ServedStore>(
    app: &App<S>,
    request: &RateLimitRequest,
    asked: Asked<S::Ticket>,
) -> Result<RateLimitResponse, Refusal> {
    let (mut entries, mut descriptors) = (Entries::new(), Descriptors::new());
    request::entries(request, &mut entries)?;
    request::descriptors(request, &entries, &mut descriptors)?;
    let check = check(request, &descriptors);
    let decision = app.finish(&check, asked).await;
    Ok(answer(app, request, &check, &decision))
}

fn check<'a>(request: &'a RateLimitRequest, descriptors: &'a [Descriptor<'a>]) -> Check<'a> {
    Check {
        domain: &request.domain,
        descriptors,
        // Envoy cannot hold a request back.
        waiting: Waiting::Cannot,
    }
}

fn answer<S: ServedStore>(
    app: &App<S>,
    request: &RateLimitRequest,
    check: &Check<'_>,
    decision: &Decision,
) -> RateLimitResponse {
    let policies = if app.rls.draft_headers {
        app.limiter.policies(check, decision)
    } else {
        Policies::new()
    };
    response::answer(&app.rls, request, decision, &policies, app.limiter.clock())
}
