//! The channel to a collector over gRPC, encrypted or not.

use std::sync::Arc;
use std::time::Duration;

use http::Uri;
use hyper_util::rt::TokioIo;
use tonic::transport::{Channel, Endpoint};

use super::{OtlpConfig, OtlpError};

/// Timeout for connecting and for the TLS handshake.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// The protocol that gRPC servers expect to be asked for.
const HTTP2: &[u8] = b"h2";

/// The channel to the collector. It connects when the first spans are sent, and again after the connection is lost.
///
/// # Errors
/// The address is none, or a TLS file cannot be used.
pub(super) fn channel(config: &OtlpConfig) -> Result<Channel, OtlpError> {
    let (origin, server) = config.server(HTTP2)?;
    let place = origin.authority().map_or("", |it| it.as_str());
    // Tonic would insist on TLS settings of its own for an https address, so only requests name that one.
    let endpoint = Endpoint::from_shared(format!("http://{place}"));
    let endpoint = endpoint.map_err(|_| config.wrong())?;
    let endpoint = endpoint.connect_timeout(CONNECT_TIMEOUT);
    if !server.is_encrypted() {
        return Ok(endpoint.connect_lazy());
    }
    let server = Arc::new(server);
    let connector = tower::service_fn(move |_: Uri| {
        let server = Arc::clone(&server);
        async move { server.connect().await.map(TokioIo::new) }
    });
    Ok(endpoint
        .origin(origin)
        .connect_with_connector_lazy(connector))
}
