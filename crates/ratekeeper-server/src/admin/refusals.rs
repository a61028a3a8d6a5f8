//! Refusals of senders by the admin API: each is a line in the log.

use std::sync::Arc;

use axum::extract::{MatchedPath, Request, State};
use axum::middleware::Next;
use axum::response::Response;
use http::StatusCode;

use crate::app::App;
use crate::http::ApiError;
use crate::listen::{Peer, PeerAddress};

/// Logs the errors of handlers that are about the sender.
pub(super) async fn log(State(app): State<Arc<App>>, request: Request, next: Next) -> Response {
    let method = request.method().clone();
    // Not the path itself: it may name an API key.
    let path = request.extensions().get::<MatchedPath>().cloned();
    let peer = request.extensions().get::<Peer>().map(|peer| peer.address);
    let response = next.run(request).await;
    let Some(error) = response.extensions().get::<ApiError>() else {
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
    response
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
