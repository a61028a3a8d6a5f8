//! The roles that parts of the admin listener need.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use crate::access::Role;
use crate::app::App;
use crate::http::ApiError;
use crate::listen::Peer;

/// Lets only requests of senders with a role pass, and adds the [`Operator`](crate::access::Operator) to them.
pub(super) async fn require(
    State((app, role)): State<(Arc<App>, Role)>,
    request: Request,
    next: Next,
) -> Response {
    let (mut parts, body) = request.into_parts();
    match app.access.admit(&parts, role) {
        Ok(operator) => {
            parts.extensions.insert(operator);
            next.run(Request::from_parts(parts, body)).await
        }
        Err(refused) => ApiError::from(refused).into_response(),
    }
}

/// Lets scrapers on this host pass without credentials; others need a role.
pub(super) async fn require_from_afar(
    state: State<(Arc<App>, Role)>,
    request: Request,
    next: Next,
) -> Response {
    let peer = request.extensions().get::<Peer>();
    match peer.is_some_and(|peer| peer.is_local() && peer.by_local_listener) {
        true => next.run(request).await,
        false => require(state, request, next).await,
    }
}
