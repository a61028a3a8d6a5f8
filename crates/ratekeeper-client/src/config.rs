//! The settings of a client.

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use ratekeeper_tls::{TlsFileError, TlsFiles};

use crate::FallbackPolicy;

/// The settings of a client: endpoints, deadline, retries and fallback. `Debug` leaves the token out.
#[derive(Clone)]
#[non_exhaustive]
pub struct Config {
    /// The gRPC endpoints of the services: `http://HOST:PORT`, `https://HOST:PORT`, or
    /// `unix:/PATH`. A service is called while those before it do not answer. A host with several
    /// addresses is one service, connected at the first address that accepts.
    pub endpoints: Vec<String>,
    /// Connections to a service from each calling runtime: 2 by default, 0 counts as 1. A stalled
    /// connection delays only the calls on it.
    pub connections: usize,
    /// Trust in the service, and the client's own certificate; for `https://`.
    pub tls: Tls,
    /// The bearer token that identifies this caller to the service. Required for calls other than
    /// checks if the service is reachable from other hosts and the client has no certificate. Never
    /// logged.
    pub token: Option<String>,
    /// A file with that token, instead of it. Read again when the service does not know the token, at most once a
    /// second; the call is repeated with the new one.
    pub token_file: Option<PathBuf>,
    /// Deadline of a call, connecting and retries included: 20 ms by default. More than a year counts as one.
    pub deadline: Duration,
    /// The limit on retries.
    pub retries: RetryBudget,
    /// The answer to checks while the service is away: allow, by default.
    pub fallback: FallbackPolicy,
}

/// Trust in the service, and the client's own certificate.
#[derive(Clone, Debug, Default)]
pub struct Tls {
    /// The PEM files: the trusted authorities, required for `https://`, and the client certificate for services that require
    /// one (mTLS). Each new connection uses renewed files; while they are unusable, the last good ones.
    pub files: TlsFiles,
    /// The name that the service's certificate must have, if it is not the endpoint's host.
    pub server_name: Option<String>,
}

/// A limit on retries. Without one, retries keep an overloaded service overloaded.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RetryBudget {
    /// Retries per hundred calls in the long run: 0 to 100; more counts as 100.
    pub percent: u32,
    /// Retries that may follow at once after a time without any: at most 1,000,000; more counts as
    /// that. 0 disables retries.
    pub burst: u32,
}

impl Default for RetryBudget {
    /// 10 per hundred calls, 10 at once.
    fn default() -> Self {
        Self {
            percent: 10,
            burst: 10,
        }
    }
}

impl Config {
    /// The defaults, for a single service at `endpoint`.
    #[must_use]
    pub fn new(endpoint: impl Into<String>) -> Self {
        Self {
            endpoints: vec![endpoint.into()],
            connections: 2,
            tls: Tls::default(),
            token: None,
            token_file: None,
            deadline: Duration::from_millis(20),
            retries: RetryBudget::default(),
            fallback: FallbackPolicy::Allow,
        }
    }
}

impl fmt::Debug for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let token = self.token.as_ref().map(|_| format_args!(".."));
        f.debug_struct("Config")
            .field("endpoints", &self.endpoints)
            .field("connections", &self.connections)
            .field("tls", &self.tls)
            .field("token", &token)
            .field("token_file", &self.token_file)
            .field("deadline", &self.deadline)
            .field("retries", &self.retries)
            .field("fallback", &self.fallback)
            .finish()
    }
}

/// The reason why a configuration is refused.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// The endpoint is not an address.
    #[error(
        "endpoint: {0:?} is not an address; write http://HOST:PORT, https://HOST:PORT or unix:/PATH"
    )]
    Endpoint(String),
    /// There is no endpoint.
    #[error("endpoints: there is no service to ask")]
    NoEndpoint,
    /// A TLS file cannot be used, or the files do not fit together.
    #[error("tls.files: {0}")]
    TlsFile(#[source] TlsFileError),
    /// `https://` without trusted authorities.
    #[error("tls.files: https needs the authorities' certificates")]
    NoAuthorities,
    /// The token file cannot be read, or has no token.
    #[error("token_file: cannot read {path}: {error}", path = .0.display(), error = .1)]
    TokenFile(PathBuf, #[source] io::Error),
    /// The token has characters that a header cannot have.
    #[error("token: only visible ASCII characters can be sent")]
    Token,
    /// The deadline is zero.
    #[error("deadline: it must be longer than 0")]
    Deadline,
    /// The client was created outside a Tokio runtime.
    #[error("a client is made within a Tokio runtime, which its calls run on")]
    NoRuntime,
}
