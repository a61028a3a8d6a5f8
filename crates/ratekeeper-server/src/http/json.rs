//! `/json`: Envoy's protocol as JSON, with envoyproxy/ratelimit's status codes and our messages.

use std::sync::Arc;

use axum::body::Bytes;
use axum::extract::rejection::BytesRejection;
use axum::extract::{Extension, State};
use axum::response::{IntoResponse, Response};
use http::header::{AUTHORIZATION, CONNECTION, CONTENT_TYPE};
use http::{HeaderMap, StatusCode};
use ratekeeper_proto::envoy::service::ratelimit::v3::RateLimitResponse;
use ratekeeper_proto::envoy::service::ratelimit::v3::rate_limit_response::Code;
use ratekeeper_proto::json::{read_request, write_response};
use ratekeeper_rules::Profile;

use super::error::ApiError;
use super::json_body::malformed;
use super::media_type::is_json;
use super::pages::{self, Scheme};
use crate::app::App;
use crate::listen::Peer;
use crate::listen::reading::NoReadingRoom;
use crate::logs::denials::CheckOrigin;
use crate::logs::unreadable::Defect;
use crate::protocol::rls::{self, RequiredPermissions};
use crate::protocol::v1::Refusal;

/// Takes any method, as envoyproxy/ratelimit does, but any content type only under its profile. A web page
/// can have a browser post types other than JSON anywhere, without a preflight request.
pub(super) async fn answer(
    State(app): State<Arc<App>>,
    Extension(peer): Extension<Peer>,
    headers: HeaderMap,
    body: Result<Bytes, BytesRejection>,
) -> Response {
    let body = match body {
        Ok(body) => body,
        Err(rejection) => return unread(&app, &rejection),
    };
    if app.config.rls.profile != Profile::Envoy && !body.is_empty() && !is_json(&headers) {
        let message = "send the body as Content-Type: application/json";
        return refused(StatusCode::UNSUPPORTED_MEDIA_TYPE, message);
    }
    let request = match read_request(&body) {
        Ok(request) => request,
        Err(_) if std::str::from_utf8(&body).is_err() => {
            let message = "the body is not UTF-8";
            return match app.unreadable.judge("json", Defect::Malformed, message) {
                Some(passes) => told(&rls::unread(&app, passes, 0)),
                None => refused(StatusCode::BAD_REQUEST, message),
            };
        }
        Err(error) => {
            let message = malformed(&body).unwrap_or_else(|| error.to_string());
            return refused(StatusCode::BAD_REQUEST, &message);
        }
    };
    let needs = RequiredPermissions::of(&request, app.config.rls.callers());
    if !needs.are_none()
        && let Err(error) = admit(&app, &peer, &headers, needs)
    {
        return error.into_response();
    }
    let origin = CheckOrigin::new("json", Some(&headers));
    match rls::decide(&app, &request, origin).await {
        Ok(response) => told(&response),
        // Rules that are missing are a 400 to envoyproxy/ratelimit as well.
        Err(refusal) => refused(StatusCode::BAD_REQUEST, &refusal.to_string()),
    }
}

/// The decision as envoyproxy/ratelimit tells it.
fn told(response: &RateLimitResponse) -> Response {
    let status = match response.overall_code() {
        Code::Ok => StatusCode::OK,
        Code::OverLimit => StatusCode::TOO_MANY_REQUESTS,
        Code::Unknown => StatusCode::INTERNAL_SERVER_ERROR,
    };
    let content_type = [(CONTENT_TYPE, "application/json")];
    (status, content_type, write_response(response)).into_response()
}

/// Answers a body that is too large, or broke off.
fn unread(app: &App, rejection: &BytesRejection) -> Response {
    let (status, message) = (rejection.status(), rejection.body_text());
    if status != StatusCode::PAYLOAD_TOO_LARGE && !NoReadingRoom::is_cause(rejection) {
        return refused(status, &message);
    }
    match app.unreadable.judge("json", Defect::TooLarge, &message) {
        // What follows on this connection is the rest of that body.
        Some(passes) => {
            let answer = told(&rls::unread(app, passes, 0));
            ([(CONNECTION, "close")], answer).into_response()
        }
        None => refused(status, &message),
    }
}

/// Refuses what needs a permission that its sender has not, or that a web page may have sent.
fn admit(
    app: &App,
    peer: &Peer,
    headers: &HeaderMap,
    needs: RequiredPermissions,
) -> Result<(), ApiError> {
    let authorization = headers.get(AUTHORIZATION).map(|value| value.as_bytes());
    let admitted = needs.admit(&app.callers, Some(peer), authorization);
    let admitted = admitted.map_err(|denied| {
        app.log_rls_refusal(&denied);
        Refusal::from(denied)
    })?;
    match admitted.is_by_place {
        true => pages::refuse(headers, peer, Scheme::of(app.is_encrypted("http"))),
        false => Ok(()),
    }
}

fn refused(status: StatusCode, message: &str) -> Response {
    (status, format!("{message}\n")).into_response()
}
