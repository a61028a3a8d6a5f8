//! Envoy's rate limit protocol, whatever carries it: gRPC or `/json`.

mod constant;
mod headers;
mod metadata;
mod request;
mod response;

use ratekeeper_limiter::{Check, Policies, Waiting};
use ratekeeper_proto::envoy::service::ratelimit::v3::{RateLimitRequest, RateLimitResponse};

pub use constant::{ConstantAnswer, NoAnswer};

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
    let entries = request::entries(request)?;
    let descriptors = request::descriptors(request, &entries)?;
    if !app.is_loaded() {
        return Err(Refusal::NoRules);
    }
    let check = Check {
        domain: &request.domain,
        descriptors: &descriptors,
        // Envoy cannot hold a request back.
        waiting: Waiting::Cannot,
    };
    let decision = app.check(&check).await;
    let policies = if app.rls.draft_headers {
        app.limiter.policies(&check, &decision)
    } else {
        Policies::new()
    };
    Ok(response::answer(&app.rls, request, &decision, &policies))
}
