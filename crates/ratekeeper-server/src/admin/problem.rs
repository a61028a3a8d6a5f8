//! Errors of the admin API: each a problem (RFC 9457), and each refusal of a sender a line in the log.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{MatchedPath, Request, State};
use axum::middleware::Next;
use axum::response::Response;
use http::StatusCode;
use http::header::{CONTENT_LENGTH, CONTENT_TYPE, HeaderValue};
use serde::Serialize;
use utoipa::ToSchema;

use crate::app::App;
use crate::http::ApiError;
use crate::listen::{Peer, PeerAddress};
use crate::store::ServedStore;

/// The body of an error.
#[derive(Serialize, ToSchema)]
pub(super) struct Problem<'a> {
    /// Always `about:blank`: the status and the code say it all.
    r#type: &'static str,
    title: &'a str,
    status: u16,
    detail: &'a str,
    /// The error for programs, such as `INVALID_ARGUMENT`.
    code: &'a str,
    /// The path of the wrong field in the body, or the wrong parameter with a `?`; absent if the fault is
    /// elsewhere.
    #[serde(skip_serializing_if = "str::is_empty")]
    field: &'a str,
}

/// Turns the errors of handlers into problems, and logs those about the sender.
pub(super) async fn speak<S: ServedStore>(
    State(app): State<Arc<App<S>>>,
    request: Request,
    next: Next,
) -> Response {
    let method = request.method().clone();
    // Not the path itself: it may name an API key.
    let path = request.extensions().get::<MatchedPath>().cloned();
    let peer = request.extensions().get::<Peer>().map(|peer| peer.address);
    let mut response = next.run(request).await;
    let Some(error) = response.extensions_mut().remove::<ApiError>() else {
        return response;
    };
    if is_about_the_sender(error.status())
        && let Some(silenced) = app.refusal_log.may_say()
    {
        let path = path.as_ref().map_or("(unknown)", MatchedPath::as_str);
        let peer = match peer {
            Some(PeerAddress::Tcp(address)) => address.ip().to_string(),
            Some(PeerAddress::Unix) => "unix".to_owned(),
            None => String::new(),
        };
        let (code, why) = (error.code(), error.message());
        tracing::warn!(%peer, %method, path, code, why, silenced, "a request to the admin API is refused");
    }
    let status = error.status();
    let problem = Problem {
        r#type: "about:blank",
        title: status.canonical_reason().unwrap_or("Error"),
        status: status.as_u16(),
        detail: error.message(),
        code: error.code(),
        field: error.field(),
    };
    let (mut head, _) = response.into_parts();
    let kind = HeaderValue::from_static("application/problem+json");
    head.headers.insert(CONTENT_TYPE, kind);
    head.headers.remove(CONTENT_LENGTH);
    // A few strings: nothing in there can fail.
    let text = serde_json::to_vec(&problem).unwrap_or_default();
    Response::from_parts(head, Body::from(text))
}

fn is_about_the_sender(status: StatusCode) -> bool {
    matches!(
        status,
        StatusCode::UNAUTHORIZED
            | StatusCode::FORBIDDEN
            | StatusCode::MISDIRECTED_REQUEST
            | StatusCode::TOO_MANY_REQUESTS
    )
}
