//! Hands the requests that the layer denies to the server's denial log.

use std::sync::Arc;

use ratekeeper_server::DenialLog;
use ratekeeper_tower::answer::HttpDenial;

/// The id of a request whose client gave it none, in its extensions: the same in the access log and the denial log.
#[derive(Clone, Debug)]
pub(crate) struct MadeId(pub(crate) Arc<str>);

/// Tells `log` of a request that the layer denied.
pub(crate) fn record(log: &DenialLog, denied: &HttpDenial<'_>) {
    let made = denied.extensions.get::<MadeId>();
    log.record_at_gateway(denied, made.map(|made| &*made.0));
}
