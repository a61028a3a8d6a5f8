//! Hands the requests that the layer denies to the server's denial log.

use std::sync::Arc;

use ratekeeper_server::{DenialLog, GatewayDenial};
use ratekeeper_tower::DeniedByLayer;

/// The id of a request whose client gave it none, in its extensions: the same in the access log and the denial log.
#[derive(Clone, Debug)]
pub(crate) struct MadeId(pub(crate) Arc<str>);

/// Tells `log` of a request that the layer denied.
pub(crate) fn note(log: &DenialLog, request: &DeniedByLayer<'_>) {
    let made = request.extensions.get::<MadeId>();
    log.note_at_gateway(&GatewayDenial {
        denial: request.denial,
        is_enforced: request.is_enforced,
        request_id: made.map(|made| &*made.0),
        headers: request.headers,
        method: request.method.as_str(),
        path: request.uri.path(),
    });
}
