//! Endpoints of the services and the settings of connections to them.

use std::sync::Arc;
use std::time::Duration;

use hyper_util::rt::TokioIo;
use ratekeeper_tls::Destination;
use tonic::transport::{Channel, Endpoint, Uri};

use crate::{Config, ConfigError};

/// The interval of HTTP/2 pings on a silent connection, and the time that an answer may take.
const PING_INTERVAL: Duration = Duration::from_secs(10);
const PING_TIMEOUT: Duration = Duration::from_secs(5);

/// Timeout for connecting; calls give up by their own deadline.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);

/// The protocol that gRPC servers expect to be asked for.
const HTTP2: &[u8] = b"h2";

/// A service to connect to.
#[derive(Debug)]
pub(crate) struct ServiceEndpoint {
    endpoint: Endpoint,
    /// None without encryption.
    encrypted: Option<Arc<Destination>>,
}

impl ServiceEndpoint {
    /// A channel that connects with its first call, and again after the connection is lost; each time with the TLS files
    /// as they are by then.
    pub(crate) fn connect_lazy(&self) -> Channel {
        let Some(destination) = &self.encrypted else {
            return self.endpoint.connect_lazy();
        };
        let destination = Arc::clone(destination);
        let connector = tower::service_fn(move |_: Uri| {
            let destination = Arc::clone(&destination);
            async move { destination.connect().await.map(TokioIo::new) }
        });
        self.endpoint.connect_with_connector_lazy(connector)
    }
}

/// The endpoint of each service, with its name.
pub(crate) fn endpoints(config: &Config) -> Result<Vec<(String, ServiceEndpoint)>, ConfigError> {
    if tokio::runtime::Handle::try_current().is_err() {
        return Err(ConfigError::NoRuntime);
    }
    let endpoint = |address: &String| Ok((address.clone(), endpoint(address, config)?));
    config.endpoints.iter().map(endpoint).collect()
}

fn endpoint(address: &str, config: &Config) -> Result<ServiceEndpoint, ConfigError> {
    let wrong = || ConfigError::Endpoint(address.to_owned());
    let schemes = ["http://", "https://", "unix:/"];
    if !schemes.iter().any(|scheme| address.starts_with(scheme)) {
        return Err(wrong());
    }
    let (endpoint, encrypted) = match address.starts_with("https://") {
        false => (Endpoint::from_shared(address.to_owned()), None),
        true => {
            let uri: Uri = address.parse().map_err(|_| wrong())?;
            let place = uri.authority().ok_or_else(wrong)?;
            let destination = destination(&uri, config)?;
            // Tonic would insist on TLS settings of its own for an https address, so only requests name that one.
            let endpoint = Endpoint::from_shared(format!("http://{place}"));
            (endpoint.map(|it| it.origin(uri)), Some(destination))
        }
    };
    let endpoint = endpoint
        .map_err(|_| wrong())?
        .connect_timeout(CONNECT_TIMEOUT)
        .tcp_nodelay(true)
        .http2_keep_alive_interval(PING_INTERVAL)
        .keep_alive_timeout(PING_TIMEOUT);
    Ok(ServiceEndpoint {
        endpoint,
        encrypted: encrypted.map(Arc::new),
    })
}

/// The server at `uri`, with the TLS files read once, so that a bad one is an error now.
fn destination(uri: &Uri, config: &Config) -> Result<Destination, ConfigError> {
    let tls = &config.tls;
    if tls.files.authorities.is_none() {
        return Err(ConfigError::NoAuthorities);
    }
    let server_name = tls.server_name.as_deref();
    let destination = Destination::new(uri, server_name, &tls.files, HTTP2);
    let destination = destination.ok_or_else(|| ConfigError::Endpoint(uri.to_string()))?;
    destination.check_files().map_err(ConfigError::TlsFile)?;
    Ok(destination)
}
