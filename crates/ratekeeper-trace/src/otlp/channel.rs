//! The connection to the collector, encrypted or not.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use http::Uri;
use hyper_util::rt::TokioIo;
use ratekeeper_tls::ClientTls;
use rustls::pki_types::ServerName;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tonic::transport::{Channel, Endpoint};

use super::{OtlpConfig, OtlpError};

const HTTPS: &str = "https://";

/// Timeout for connecting and for the TLS handshake.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// The protocol that gRPC servers expect to be asked for.
const HTTP2: &[u8] = b"h2";

/// The channel to the collector. It connects when the first spans are sent, and again after the connection is lost.
///
/// # Errors
/// The address is none, or a TLS file cannot be used.
pub(super) fn channel(config: &OtlpConfig) -> Result<Channel, OtlpError> {
    let Some(place) = config.endpoint.strip_prefix(HTTPS) else {
        return Ok(endpoint(config, &config.endpoint)?.connect_lazy());
    };
    let origin: Uri = config.endpoint.parse().map_err(|_| wrong(config))?;
    let host = origin.host().unwrap_or_default();
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let name = ServerName::try_from(host.to_owned()).map_err(|_| wrong(config))?;
    let encrypted = Encrypted {
        place: place.to_owned(),
        name,
        tls: ClientTls::new(config.tls.clone()),
    };
    // A file that cannot be used stops the start.
    encrypted.tls.config().map_err(OtlpError::Tls)?;
    let encrypted = Arc::new(encrypted);
    let connector = tower::service_fn(move |_: Uri| Arc::clone(&encrypted).connect());
    // Tonic would insist on TLS settings of its own for an https address, so only requests name that one.
    let endpoint = endpoint(config, &format!("http://{place}"))?.origin(origin);
    Ok(endpoint.connect_with_connector_lazy(connector))
}

fn endpoint(config: &OtlpConfig, address: &str) -> Result<Endpoint, OtlpError> {
    let endpoint = Endpoint::from_shared(address.to_owned()).map_err(|_| wrong(config))?;
    Ok(endpoint.connect_timeout(CONNECT_TIMEOUT))
}

fn wrong(config: &OtlpConfig) -> OtlpError {
    OtlpError::Address(config.endpoint.clone())
}

/// A collector that is reached over TLS.
struct Encrypted {
    /// Host and port.
    place: String,
    /// The name that its certificate must have.
    name: ServerName<'static>,
    tls: ClientTls,
}

impl Encrypted {
    async fn connect(self: Arc<Self>) -> io::Result<TokioIo<TlsStream<TcpStream>>> {
        // Read for each connection: files change when certificates are renewed.
        let config = self.tls.config().map_err(io::Error::other)?;
        let mut config = (*config).clone();
        config.alpn_protocols = vec![HTTP2.to_vec()];
        let stream = TcpStream::connect(&self.place).await?;
        let connector = TlsConnector::from(Arc::new(config));
        Ok(TokioIo::new(
            connector.connect(self.name.clone(), stream).await?,
        ))
    }
}
