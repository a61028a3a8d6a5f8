//! Envoy's rate limit service: permissions, and the codes of refusals.

use std::sync::Arc;

use http::header::{AUTHORIZATION, HeaderValue};
use http::{Extensions, HeaderMap};
use ratekeeper_limiter::Check;
use ratekeeper_proto::envoy::service::ratelimit::v3::rate_limit_service_server::RateLimitService;
use ratekeeper_proto::envoy::service::ratelimit::v3::{RateLimitRequest, RateLimitResponse};
use ratekeeper_store::Answer;
use tonic::Status;

use crate::app::App;
use crate::config::constant::ConstantAnswer;
use crate::listen::Peer;
use crate::logs::denials::CheckOrigin;
use crate::protocol::rls::{self, Refusal, RequiredPermissions};
use crate::protocol::v1::Refusal as V1Refusal;

/// Envoy's service on top of an [`App`].
#[derive(Debug)]
pub(super) struct Rls {
    pub(super) app: Arc<App>,
    pub(super) constant: Option<ConstantAnswer>,
    /// The peer to assume where the connection names none: on this host if only this host can reach
    /// the listener, else anywhere.
    pub(super) unknown: Peer,
}

impl Rls {
    /// Refuses a request if it needs a permission that its sender has not.
    #[cold]
    fn admit(
        &self,
        headers: &HeaderMap,
        extensions: &Extensions,
        needs: RequiredPermissions,
    ) -> Result<(), Status> {
        let peer = extensions.get().unwrap_or(&self.unknown);
        let authorization = headers.get(AUTHORIZATION);
        let authorization = authorization.map(HeaderValue::as_bytes);
        let admitted = needs.admit(&self.app.callers, Some(peer), authorization);
        let Err(why) = admitted.and_then(|it| it.unless_page(headers)) else {
            return Ok(());
        };
        self.app.log_rls_refusal(&why);
        Err(V1Refusal::from(why).into())
    }

    /// Decides `request`, which came with `headers` and `extensions`.
    pub(super) async fn decide(
        &self,
        headers: &HeaderMap,
        extensions: &Extensions,
        request: &RateLimitRequest,
    ) -> Result<RateLimitResponse, Status> {
        if let Some(constant) = &self.constant {
            return Ok(constant.answer());
        }
        let needs = RequiredPermissions::of(request, self.app.config.rls.callers());
        if !needs.are_none() {
            self.admit(headers, extensions, needs)?;
        }
        let origin = CheckOrigin::new("rls", Some(headers));
        // Each answer is moved once: combinators of results would move it again and again.
        match rls::ask(&self.app, request, origin) {
            Answer::Decided(Ok(answer)) => Ok(answer),
            Answer::Decided(Err(refusal)) => {
                rls::refuse(&self.app, origin.protocol, request, refusal).map_err(status)
            }
            Answer::Pending(pending) => {
                Ok(rls::finish(&self.app, Some(request), origin, pending).await)
            }
        }
    }

    /// Reads an encoded request in place, if it and its answer have nothing that needs a message.
    pub(super) fn plain<'a>(&self, message: &'a [u8]) -> Option<Check<'a>> {
        match self.app.config.rls.dynamic_metadata {
            true => None,
            false => rls::read_plain(message),
        }
    }

    /// Decides a request as [`Self::decide`] does, which was read in place.
    pub(super) async fn decide_plain(
        &self,
        headers: &HeaderMap,
        extensions: &Extensions,
        mut check: Check<'_>,
    ) -> Result<RateLimitResponse, Status> {
        if let Some(constant) = &self.constant {
            return Ok(constant.answer());
        }
        let needs = RequiredPermissions::of_plain(self.app.config.rls.callers());
        if !needs.are_none() {
            self.admit(headers, extensions, needs)?;
        }
        let origin = CheckOrigin::new("rls", Some(headers));
        match rls::ask_check(&self.app, &mut check, None, origin) {
            Answer::Decided(answer) => answer.map_err(status),
            Answer::Pending(pending) => Ok(rls::finish(&self.app, None, origin, pending).await),
        }
    }
}

#[tonic::async_trait]
impl RateLimitService for Rls {
    async fn should_rate_limit(
        &self,
        request: tonic::Request<RateLimitRequest>,
    ) -> Result<tonic::Response<RateLimitResponse>, Status> {
        let (metadata, extensions) = (request.metadata(), request.extensions());
        let answer = self.decide(metadata.as_ref(), extensions, request.get_ref());
        answer.await.map(tonic::Response::new)
    }
}

/// Codes that Envoy does not take for an answer: it lets UNKNOWN, which envoyproxy/ratelimit says, pass.
fn status(refusal: Refusal) -> Status {
    match refusal {
        Refusal::Invalid(_) | Refusal::OutOfBounds(_) => {
            Status::invalid_argument(refusal.to_string())
        }
        Refusal::NoRules => Status::unavailable(refusal.to_string()),
        // To outlier detection that would be a node that fails, and it is one domain.
        Refusal::NoRulesOf(_) => Status::not_found(refusal.to_string()),
    }
}
