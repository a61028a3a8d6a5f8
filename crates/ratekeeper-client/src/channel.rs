//! The connection: made when it is first needed, and again whenever it was lost.

use std::time::Duration;

use tonic::metadata::{Ascii, MetadataValue};
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity};

use crate::{Config, ConfigError};

/// How often a silent service is asked whether it is there, and how long it may take.
const PING_INTERVAL: Duration = Duration::from_secs(10);
const PING_TIMEOUT: Duration = Duration::from_secs(5);

/// The longest that connecting may take; calls give up by their own deadline.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);

pub(crate) fn connect(config: &Config) -> Result<Channel, ConfigError> {
    if tokio::runtime::Handle::try_current().is_err() {
        return Err(ConfigError::NoRuntime);
    }
    let wrong = || ConfigError::Endpoint(config.endpoint.clone());
    let schemes = ["http://", "https://", "unix:/"];
    if !schemes
        .iter()
        .any(|scheme| config.endpoint.starts_with(scheme))
    {
        return Err(wrong());
    }
    let endpoint = Endpoint::from_shared(config.endpoint.clone()).map_err(|_| wrong())?;
    let mut endpoint = endpoint
        .connect_timeout(CONNECT_TIMEOUT)
        .tcp_nodelay(true)
        .http2_keep_alive_interval(PING_INTERVAL)
        .keep_alive_timeout(PING_TIMEOUT);
    if config.endpoint.starts_with("https://") {
        endpoint = endpoint
            .tls_config(tls(config)?)
            .map_err(ConfigError::Tls)?;
    }
    Ok(endpoint.connect_lazy())
}

fn tls(config: &Config) -> Result<ClientTlsConfig, ConfigError> {
    let authorities = config.tls.authorities_pem.as_ref();
    let authorities = authorities.ok_or(ConfigError::NoAuthorities)?;
    let mut tls = ClientTlsConfig::new().ca_certificate(Certificate::from_pem(authorities));
    if let Some(name) = &config.tls.server_name {
        tls = tls.domain_name(name);
    }
    if let Some(own) = &config.tls.identity {
        tls = tls.identity(Identity::from_pem(&own.certificate_pem, &own.key_pem));
    }
    Ok(tls)
}

/// The header that says who calls.
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
