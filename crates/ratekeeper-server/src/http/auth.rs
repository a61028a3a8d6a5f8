//! `/v1/auth`: forward-auth. A proxy describes a request in headers and asks if it may pass.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use axum::extract::{Extension, State};
use axum::response::{IntoResponse, Response};
use http::{HeaderMap, StatusCode};
use ratekeeper_http::answer::{BodyForm, Denial, Form, Refusal, RequestStatus};
use ratekeeper_http::{Forwarding, Hop, Malformed, Original, Refused, UnclearDomain};
use ratekeeper_limiter::Ruling;
use serde::Deserialize;
use tracing::warn;
use utoipa::IntoParams;

use super::error::ApiError;
use super::query::Given;
use crate::app::App;
use crate::listen::{Peer, PeerAddress};
use crate::logs::denials::CheckOrigin;
use crate::logs::unreadable::Defect;

#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(super) struct Options {
    /// The domain whose rules decide, where there are several.
    domain: Option<String>,
    /// The status of a denial: 429, or what the proxy understands instead.
    deny_status: Option<u16>,
}

/// Decides for a proxy on the request that its headers describe. Any method; the body is never read.
#[utoipa::path(
    method(get, head, post, put, patch, delete, options, trace),
    path = "/v1/auth",
    tag = "checks",
    params(Options),
    responses(
        (status = 200, description = "The request may pass; headers tell its limits"),
        (status = 429, description = "A denial, with the body and headers that clients get; `deny_status` for another status")
    )
)]
pub(super) async fn answer(
    State(app): State<Arc<App>>,
    Extension(peer): Extension<Peer>,
    Given(options): Given<Options>,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    let deny_status = deny_status(options.deny_status)?;
    if !app.is_loaded() {
        return Err(ApiError::no_rules());
    }
    log_stranger(&app.config.auth.forwarding, &peer, &headers);
    let original = Original::forwarded(hop(&peer), &headers, &app.config.auth.forwarding)
        .inspect_err(|malformed| record_unreadable(&app, malformed))?;
    let snapshot = app.limiter.snapshot();
    let (describer, rules) = (&app.config.auth.describer, snapshot.rules());
    let domain = describer.domain(options.domain.as_deref(), rules)?;
    if let Err(lack) = app.require_rules(domain) {
        // Some proxies give a client the status of a refusal: 404 would be an answer to its own request.
        return Err(ApiError::unavailable(lack.to_string()));
    }
    if domain.is_none() && rules.service_levels().is_empty() {
        return Err(UnclearDomain::Several(0).into());
    }
    let question = describer.question(&original, domain, rules);
    let question = question.inspect_err(|refused| {
        if let Refused::Malformed(malformed) = refused {
            record_unreadable(&app, malformed);
        }
    })?;
    if question.is_empty() {
        return Ok(StatusCode::OK.into_response());
    }
    let now = app.limiter.clock().now();
    let respond = |ruling: &Ruling<'_>| {
        let limits =
            RequestStatus::of(&ruling.policies(), ruling.decision, ruling.descriptors, now);
        let told = app.config.auth.headers.lines(&limits);
        if ruling.decision.allowed() {
            let told: HeaderMap = told.into_iter().collect();
            return (StatusCode::OK, told).into_response();
        }
        let denial = Denial::new(limits, ruling.descriptors.domain);
        let form = Form::Http(BodyForm::wanted(&headers, app.config.auth.denial_body));
        let mut denied = Refusal::Denied(Box::new(denial)).response(&form, told);
        *denied.status_mut() = deny_status;
        denied.map(Into::into)
    };
    let target = original.target.as_ref();
    let origin = CheckOrigin {
        method: original.method,
        path: target.map(|target| &*target.path),
        ..CheckOrigin::new("auth", Some(&headers))
    };
    Ok(app.check(question.check(), now, origin, respond).await)
}

pub(super) const fn hop(peer: &Peer) -> Hop {
    match peer.address {
        PeerAddress::Tcp(address) => Hop::Address(address.ip()),
        PeerAddress::Unix => Hop::Unix,
    }
}

/// Counts a request that an upstream could read in another way than it would be counted. It is refused in any case: no
/// proxy takes a 400 for a permission.
fn record_unreadable(app: &App, malformed: &Malformed) {
    let why = malformed.to_string();
    app.unreadable.refuse("auth", Defect::Malformed, &why);
}

/// The statuses that some proxy takes for a refusal; NGINX takes no other than 401 and 403.
fn deny_status(asked: Option<u16>) -> Result<StatusCode, ApiError> {
    match asked {
        None | Some(429) => Ok(StatusCode::TOO_MANY_REQUESTS),
        Some(401) => Ok(StatusCode::UNAUTHORIZED),
        Some(403) => Ok(StatusCode::FORBIDDEN),
        Some(other) => {
            let message = format!("{other} is not a status of a denial; write 401, 403 or 429");
            Err(ApiError::invalid("?deny_status", message))
        }
    }
}

/// Logs once that a peer is not trusted, which is hard to find out otherwise.
fn log_stranger(forwarding: &Forwarding, peer: &Peer, headers: &HeaderMap) {
    static IS_SAID: AtomicBool = AtomicBool::new(false);
    let claims = [
        "x-forwarded-for",
        "x-forwarded-uri",
        "x-original-uri",
        "forwarded",
    ];
    if !forwarding.trusted.contains(hop(peer))
        && claims.iter().any(|claim| headers.contains_key(*claim))
        // Relaxed: twice by two threads at once does no harm.
        && !IS_SAID.swap(true, Ordering::Relaxed)
    {
        warn!(
            peer = ?peer.address,
            "forwarding headers on /v1/auth are ignored: the peer is not in trusted_proxies; logged once"
        );
    }
}

impl From<Malformed> for ApiError {
    fn from(malformed: Malformed) -> Self {
        Self::invalid(malformed.place, malformed.message)
    }
}

impl From<Refused> for ApiError {
    fn from(refused: Refused) -> Self {
        match refused {
            Refused::Malformed(malformed) => malformed.into(),
            Refused::Unauthenticated(unauthenticated) => {
                Self::challenged(&unauthenticated.to_string(), unauthenticated.challenge())
            }
        }
    }
}

/// A proxy may hand a client's query on as if it were its own, so a domain that is set is not to be chosen here.
impl From<UnclearDomain> for ApiError {
    fn from(unclear: UnclearDomain) -> Self {
        let message = match unclear {
            UnclearDomain::Contradicted => {
                "the setting `auth` names another domain; remove one of the two".to_owned()
            }
            UnclearDomain::Several(count) => format!(
                "the rules have {count} domains; say which is meant, with ?domain=NAME or with the setting `auth`"
            ),
        };
        Self::invalid("?domain", message)
    }
}
