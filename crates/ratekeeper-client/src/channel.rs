//! Endpoints of the services and the settings of connections to them.

use std::time::Duration;

use ratekeeper_tls::server_verifier;
use tonic::metadata::{Ascii, MetadataValue};
use tonic::transport::{ClientTlsConfig, Endpoint, Identity};

use crate::{Config, ConfigError};

/// The interval of HTTP/2 pings on a silent connection, and the time that an answer may take.
const PING_INTERVAL: Duration = Duration::from_secs(10);
const PING_TIMEOUT: Duration = Duration::from_secs(5);

/// Timeout for connecting; calls give up by their own deadline.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);

/// The endpoint of each service, with its name.
pub(crate) fn endpoints(config: &Config) -> Result<Vec<(String, Endpoint)>, ConfigError> {
    if tokio::runtime::Handle::try_current().is_err() {
        return Err(ConfigError::NoRuntime);
    }
    let endpoint = |address: &String| Ok((address.clone(), endpoint(address, config)?));
    config.endpoints.iter().map(endpoint).collect()
}

fn endpoint(address: &str, config: &Config) -> Result<Endpoint, ConfigError> {
    let wrong = || ConfigError::Endpoint(address.to_owned());
    let schemes = ["http://", "https://", "unix:/"];
    if !schemes.iter().any(|scheme| address.starts_with(scheme)) {
        return Err(wrong());
    }
    let endpoint = Endpoint::from_shared(address.to_owned()).map_err(|_| wrong())?;
    let endpoint = endpoint
        .connect_timeout(CONNECT_TIMEOUT)
        .tcp_nodelay(true)
        .http2_keep_alive_interval(PING_INTERVAL)
        .keep_alive_timeout(PING_TIMEOUT);
    match address.starts_with("https://") {
        true => encrypted(endpoint, config),
        false => Ok(endpoint),
    }
}

fn encrypted(endpoint: Endpoint, config: &Config) -> Result<Endpoint, ConfigError> {
    let authorities = config.tls.authorities_pem.as_ref();
    let authorities = authorities.ok_or(ConfigError::NoAuthorities)?;
    let verifier = server_verifier(authorities).map_err(ConfigError::Authorities)?;
    let mut tls = ClientTlsConfig::new();
    if let Some(name) = &config.tls.server_name {
        tls = tls.domain_name(name);
    }
    if let Some(own) = &config.tls.identity {
        tls = tls.identity(Identity::from_pem(&own.certificate_pem, &own.key_pem));
    }
    endpoint
        .tls_config_with_verifier(tls, verifier)
        .map_err(ConfigError::Tls)
}

/// The header with the caller's token.
pub(crate) fn authorization(config: &Config) -> Result<Option<MetadataValue<Ascii>>, ConfigError> {
    let Some(token) = &config.token else {
        return Ok(None);
    };
    let mut value: MetadataValue<Ascii> = format!("Bearer {token}")
        .parse()
        .map_err(|_| ConfigError::Token)?;
    value.set_sensitive(true);
    Ok(Some(value))
}
