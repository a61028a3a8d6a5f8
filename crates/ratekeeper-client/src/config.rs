//! How a client is set up.

use std::fmt;
use std::time::Duration;

use ratekeeper_tls::TlsFileCause;

use crate::Fallback;

/// How a client reaches the service, and what it does when it cannot.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Config {
    /// Where the service's gRPC listens: `http://HOST:PORT`, `https://HOST:PORT`, or
    /// `unix:/PATH`. Each of several is asked while those before it give no answer; a host with
    /// several addresses is one, connected to at the first address that takes it.
    pub endpoints: Vec<String>,
    /// How many connections each runtime that asks has to a service: 2 unless changed, 0 counts
    /// as 1. One that stands still holds up only what is on it.
    pub connections: usize,
    /// How to trust the service, and to be trusted; for `https://`.
    pub tls: Tls,
    /// The bearer token that the service knows this caller by; needed for more than checks where
    /// the service can be reached from other hosts and it shows no certificate. Never logged.
    pub token: Option<String>,
    /// How long a call may take, connecting and retries included: 20 ms unless changed.
    pub deadline: Duration,
    /// How many retries calls may cost.
    pub retries: RetryBudget,
    /// What checks are answered while the service is away: allowed, unless changed.
    pub fallback: Fallback,
}

/// How to trust the service, and to be trusted.
#[derive(Clone, Debug, Default)]
pub struct Tls {
    /// The certificates of the authorities to trust, as PEM. Required for `https://`.
    pub authorities_pem: Option<String>,
    /// The name that the service's certificate must have, where it is not the endpoint's host.
    pub server_name: Option<String>,
    /// The certificate to show, for services that want one (mTLS).
    pub identity: Option<Identity>,
}

/// A certificate and its key.
#[derive(Clone)]
pub struct Identity {
    /// The certificate, with what leads from it to its authority, as PEM.
    pub certificate_pem: String,
    /// Its private key, as PEM.
    pub key_pem: String,
}

impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Identity(secret)")
    }
}

/// How many retries calls may cost. Retries are the first thing to stop when a service is in
/// trouble, or they are what keeps it there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RetryBudget {
    /// Retries for each hundred calls, in the long run: 0 to 100, more counts as 100.
    pub percent: u32,
    /// Retries that may come at once after a time without any: at most 1,000,000, more counts
    /// as that. 0 for no retries at all.
    pub burst: u32,
}

impl Default for RetryBudget {
    /// 10 for each hundred calls, 10 at once.
    fn default() -> Self {
        Self {
            percent: 10,
            burst: 10,
        }
    }
}

impl Config {
    /// Everything by default, for the one service at `endpoint`.
    #[must_use]
    pub fn new(endpoint: impl Into<String>) -> Self {
        Self {
            endpoints: vec![endpoint.into()],
            connections: 2,
            tls: Tls::default(),
            token: None,
            deadline: Duration::from_millis(20),
            retries: RetryBudget::default(),
            fallback: Fallback::Allow,
        }
    }
}

/// Why a client cannot be set up so.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// The endpoint is no address.
    #[error(
        "endpoint: {0:?} is no address; write http://HOST:PORT, https://HOST:PORT or unix:/PATH"
    )]
    Endpoint(String),
    /// There is no endpoint.
    #[error("endpoints: there is no service to ask")]
    NoEndpoint,
    /// The certificates are no PEM, or do not fit together.
    #[error("tls: the certificates cannot be used")]
    Tls(#[source] tonic::transport::Error),
    /// The certificates of the authorities cannot be used.
    #[error("tls.authorities_pem: {0}")]
    Authorities(#[source] TlsFileCause),
    /// `https://` without anybody to trust.
    #[error("tls.authorities_pem: https needs the certificates of the authorities to trust")]
    NoAuthorities,
    /// The token has characters that no header has.
    #[error("token: only visible ASCII characters can be sent")]
    Token,
    /// No call could be made in no time.
    #[error("deadline: it must be longer than 0")]
    Deadline,
    /// There is nowhere to call from.
    #[error("a client is made within a Tokio runtime, which its calls run on")]
    NoRuntime,
}
