//! The connection to a control plane, encrypted or not.

use std::error::Error as _;
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
use tonic::Status;
use tonic::transport::{Channel, Endpoint};

use super::{CONNECT_TIMEOUT, XdsConfig};

/// The silence after which the system probes the connection. Pings of HTTP/2 would be told off: Go's gRPC servers take one
/// in five minutes.
const PROBE_AFTER: Duration = Duration::from_secs(30);

/// The protocol that gRPC servers expect to be asked for.
const HTTP2: &[u8] = b"h2";

/// The fault of a control plane's address.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("`{0}` is not the address of a control plane")]
pub struct XdsAddressError(String);

/// The way to a control plane.
#[derive(Debug)]
pub(super) struct Connection {
    endpoint: Endpoint,
    encrypted: Option<Arc<Encrypted>>,
}

impl Connection {
    pub(super) fn new(config: &XdsConfig) -> Result<Self, XdsAddressError> {
        let wrong = || XdsAddressError(config.endpoint.clone());
        let origin: Uri = config.endpoint.parse().map_err(|_| wrong())?;
        let place = origin.authority().ok_or_else(wrong)?.as_str().to_owned();
        // Tonic would insist on TLS settings of its own for an https address, so only requests name that one.
        let endpoint = Endpoint::from_shared(format!("http://{place}")).map_err(|_| wrong())?;
        let endpoint = endpoint
            .connect_timeout(CONNECT_TIMEOUT)
            .tcp_nodelay(true)
            .tcp_keepalive(Some(PROBE_AFTER));
        if origin.scheme_str() != Some("https") {
            return Ok(Self {
                endpoint,
                encrypted: None,
            });
        }
        let host = origin.host().unwrap_or_default();
        let host = host.trim_start_matches('[').trim_end_matches(']');
        let name = config.server_name.as_deref().unwrap_or(host);
        let encrypted = Encrypted {
            place,
            name: ServerName::try_from(name.to_owned()).map_err(|_| wrong())?,
            tls: ClientTls::new(config.tls.clone()),
        };
        Ok(Self {
            endpoint: endpoint.origin(origin),
            encrypted: Some(Arc::new(encrypted)),
        })
    }

    /// Connects.
    ///
    /// # Errors
    /// A text for operators.
    pub(super) async fn open(&self) -> Result<Channel, String> {
        let connected = match &self.encrypted {
            None => self.endpoint.connect().await,
            Some(encrypted) => {
                let encrypted = Arc::clone(encrypted);
                let connector = tower::service_fn(move |_: Uri| Arc::clone(&encrypted).connect());
                self.endpoint.connect_with_connector(connector).await
            }
        };
        connected.map_err(|error| causes(&error))
    }
}

/// A control plane that is reached over TLS.
#[derive(Debug)]
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
        stream.set_nodelay(true)?;
        let connector = TlsConnector::from(Arc::new(config));
        Ok(TokioIo::new(
            connector.connect(self.name.clone(), stream).await?,
        ))
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

/// The end of a stream, for people.
pub(super) fn describe(status: &Status) -> String {
    format!("{}: {}", status.code(), status.message())
}
