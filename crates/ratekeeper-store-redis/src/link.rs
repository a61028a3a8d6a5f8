//! One connection to one server.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, RedisError};
use rustls::pki_types::{InvalidDnsNameError, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

use crate::endpoint::{Address, Endpoint};

/// A connection that has been let in. Nothing moves on it but while `driver` is polled.
pub(crate) struct Link {
    pub(crate) connection: MultiplexedConnection,
    /// Ends when the connection does.
    pub(crate) driver: Pin<Box<dyn Future<Output = ()> + Send>>,
}

/// Why there is no connection: what was tried, and what came of it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LinkError {
    /// The server cannot be reached.
    #[error("cannot connect to {0}: {1}")]
    Connect(String, #[source] io::Error),
    /// The server's certificate, or ours to verify it by, is not good.
    #[error("no TLS with {0}: {1}")]
    Tls(String, #[source] io::Error),
    /// The server's name cannot stand in a certificate.
    #[error("no TLS with {0}: this name cannot stand in a certificate")]
    Name(String, #[source] InvalidDnsNameError),
    /// The server does not let us in.
    #[error("{0} refuses the login: {1}")]
    Login(String, #[source] RedisError),
    /// It took too long.
    #[error("{0} did not answer within {1:?}")]
    Timeout(String, Duration),
}

trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}
impl<S: AsyncRead + AsyncWrite + Unpin + Send> Stream for S {}

impl Link {
    /// Connects and logs in, all of it `within` that time.
    pub(crate) async fn open(endpoint: &Endpoint, within: Duration) -> Result<Self, LinkError> {
        match timeout(within, Self::enter(endpoint)).await {
            Ok(entered) => entered,
            Err(_) => Err(LinkError::Timeout(endpoint.name(), within)),
        }
    }

    async fn enter(endpoint: &Endpoint) -> Result<Self, LinkError> {
        let stream = connect(endpoint).await?;
        // Deadlines are the callers': theirs end earlier than any that could be set here.
        let config = AsyncConnectionConfig::new().set_response_timeout(None);
        let entered = MultiplexedConnection::new_with_config(&endpoint.login, stream, config).await;
        let (connection, driver) =
            entered.map_err(|error| LinkError::Login(endpoint.name(), error))?;
        Ok(Self {
            connection,
            driver: Box::pin(driver),
        })
    }
}

async fn connect(endpoint: &Endpoint) -> Result<Box<dyn Stream>, LinkError> {
    match &endpoint.address {
        Address::Tcp { host, port } => Ok(Box::new(tcp(endpoint, host, *port).await?)),
        Address::Tls { host, port } => {
            let tcp = tcp(endpoint, host, *port).await?;
            let refused = |error| LinkError::Tls(endpoint.name(), error);
            let name = ServerName::try_from(host.clone())
                .map_err(|error| LinkError::Name(endpoint.name(), error))?;
            let connector = TlsConnector::from(tls().map_err(refused)?);
            let stream = connector.connect(name, tcp).await.map_err(refused)?;
            Ok(Box::new(stream))
        }
        #[cfg(unix)]
        Address::Unix(path) => {
            let stream = tokio::net::UnixStream::connect(path).await;
            let stream = stream.map_err(|error| LinkError::Connect(endpoint.name(), error))?;
            Ok(Box::new(stream))
        }
        #[cfg(not(unix))]
        Address::Unix(_) => {
            let error = io::Error::from(io::ErrorKind::Unsupported);
            Err(LinkError::Connect(endpoint.name(), error))
        }
    }
}

async fn tcp(endpoint: &Endpoint, host: &str, port: u16) -> Result<TcpStream, LinkError> {
    let connected = TcpStream::connect((host, port)).await;
    let stream = connected.map_err(|error| LinkError::Connect(endpoint.name(), error))?;
    // A pipeline is one write; what follows it must not wait for its acknowledgement.
    let set = stream.set_nodelay(true);
    set.map_err(|error| LinkError::Connect(endpoint.name(), error))?;
    Ok(stream)
}

/// TLS by the system's authorities, read once.
fn tls() -> io::Result<Arc<ClientConfig>> {
    static CONFIG: OnceLock<Arc<ClientConfig>> = OnceLock::new();
    if let Some(config) = CONFIG.get() {
        return Ok(Arc::clone(config));
    }
    let mut roots = RootCertStore::empty();
    let found = rustls_native_certs::load_native_certs();
    roots.add_parsable_certificates(found.certs);
    if roots.is_empty() {
        let why = found.errors.first().map(ToString::to_string);
        let why = why.unwrap_or_else(|| "there are none".to_owned());
        return Err(io::Error::other(format!(
            "the system's certificate authorities cannot be had: {why}"
        )));
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(io::Error::other)?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(Arc::clone(CONFIG.get_or_init(|| Arc::new(config))))
}
