//! A connection for calls over gRPC, encrypted or not.

use std::error::Error as _;
use std::sync::Arc;
use std::time::Duration;

use http::Uri;
use hyper_util::rt::TokioIo;
use ratekeeper_tls::{Destination, TlsFiles};
use tonic::Status;
use tonic::transport::{Channel, Endpoint};

/// Timeout for connecting and for the TLS handshake.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// The silence after which the system probes a connection, and the time from one probe to the next, as over TLS. Pings of
/// HTTP/2 would be told off: Go's gRPC servers take one in five minutes.
const PROBE_AFTER: Duration = Duration::from_secs(30);
const PROBES_EVERY: Duration = Duration::from_secs(10);

/// The protocol that gRPC servers expect to be asked for.
const HTTP2: &[u8] = b"h2";

/// The way to a server of gRPC.
#[derive(Debug)]
pub(crate) struct GrpcConnection {
    endpoint: Endpoint,
    /// The server, if it is asked over TLS.
    encrypted: Option<Arc<Destination>>,
}

impl GrpcConnection {
    /// The way to `endpoint`, which is `http://HOST:PORT`, or `https://` for TLS; [`None`] if it is neither. `server_name` is
    /// the name that the certificate must have, if it is not the host. Files are read for each connection.
    pub(crate) fn new(endpoint: &str, server_name: Option<&str>, tls: &TlsFiles) -> Option<Self> {
        let origin: Uri = endpoint.parse().ok()?;
        let server = Destination::new(&origin, server_name, tls, HTTP2)?;
        let place = origin.authority()?.as_str();
        // Tonic would insist on TLS settings of its own for an https address, so only requests name that one.
        let endpoint = Endpoint::from_shared(format!("http://{place}")).ok()?;
        let endpoint = endpoint
            .connect_timeout(CONNECT_TIMEOUT)
            .tcp_nodelay(true)
            .tcp_keepalive(Some(PROBE_AFTER))
            .tcp_keepalive_interval(Some(PROBES_EVERY));
        Some(match server.is_encrypted() {
            true => Self {
                endpoint: endpoint.origin(origin),
                encrypted: Some(Arc::new(server)),
            },
            false => Self {
                endpoint,
                encrypted: None,
            },
        })
    }

    /// Connects.
    ///
    /// # Errors
    /// A text for operators.
    pub(crate) async fn open(&self) -> Result<Channel, String> {
        let connected = match &self.encrypted {
            None => self.endpoint.connect().await,
            Some(server) => {
                let server = Arc::clone(server);
                let connector = tower::service_fn(move |_: Uri| {
                    let server = Arc::clone(&server);
                    async move { server.connect().await.map(TokioIo::new) }
                });
                self.endpoint.connect_with_connector(connector).await
            }
        };
        connected.map_err(|error| causes(&error))
    }
}

/// The error and its causes, each once.
fn causes(error: &tonic::transport::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(next) = cause {
        let told = next.to_string();
        if !text.ends_with(&told) {
            text = format!("{text}: {told}");
        }
        cause = next.source();
    }
    text
}

/// The end of a call, for people.
pub(crate) fn describe(status: &Status) -> String {
    format!("{}: {}", status.code(), status.message())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_silent_connection_is_probed_often_enough_to_be_found_dead_in_minutes() {
        let way = GrpcConnection::new("http://127.0.0.1:1", None, &TlsFiles::default());
        let endpoint = way.expect("it is an address").endpoint;
        let probes = (
            endpoint.get_tcp_keepalive(),
            endpoint.get_tcp_keepalive_interval(),
        );
        let secs = |secs| Some(Duration::from_secs(secs));
        assert_eq!(probes, (secs(30), secs(10)));
    }
}
