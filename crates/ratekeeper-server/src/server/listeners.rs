//! Binding all addresses, or none, with their certificates.

use std::fmt;
use std::sync::Arc;

use ratekeeper_http::TrustedProxies;

use super::BindError;
use crate::config::ServerConfig;
use crate::figures::families::{Families, by};
use crate::figures::monitored::Monitored;
use crate::grpc::{is_rls, over_http1};
use crate::listen::tls::{Tls, TlsConfig};
use crate::listen::{Listener, Opening, Protocol, RefusedCount, ServerBounds};

/// All listeners of a server.
#[derive(Debug)]
pub(super) struct Listeners {
    pub(super) grpc: Option<Listener>,
    pub(super) http: Option<Listener>,
    pub(super) admin: Listener,
    pub(super) metrics: Option<Listener>,
    pub(super) gateway: Option<(Listener, ServerBounds)>,
}

impl Listeners {
    pub(super) async fn bind(config: &ServerConfig, secrets: &Secrets) -> Result<Self, BindError> {
        let opening = |name, protocol, address, tls: &Option<Arc<Tls>>| Opening {
            name,
            protocol,
            address,
            unix_mode: config.unix_mode,
            tls: tls.clone(),
            // A certificate may be what a request of Envoy's is permitted by.
            is_blind: match tls {
                Some(tls) if tls.asks_for_names() => |_| false,
                _ => is_rls,
            },
            trusted: match name {
                // Theirs are few, and none is to have them all.
                "admin" | "metrics" => TrustedProxies::default(),
                _ => config.auth.forwarding.trusted.clone(),
            },
            http1: (protocol == Protocol::Http2).then(over_http1),
        };
        let (h1, h2) = (Protocol::Http1, Protocol::Http2);
        let metrics = match &config.metrics {
            Some(address) => Some(bind(opening("metrics", h1, address, &secrets.metrics)).await?),
            None => None,
        };
        let grpc = match &config.grpc {
            Some(address) => Some(bind(opening("grpc", h2, address, &secrets.grpc)).await?),
            None => None,
        };
        let http = match &config.http {
            Some(address) => Some(bind(opening("http", h1, address, &secrets.http)).await?),
            None => None,
        };
        let gateway = match &config.gateway {
            Some(gateway) => {
                let either = Protocol::Either;
                let opening = opening("listen", either, &gateway.address, &secrets.gateway);
                Some((bind(opening).await?, gateway.bounds))
            }
            None => None,
        };
        Ok(Self {
            grpc,
            http,
            gateway,
            admin: bind(opening("admin", h1, &config.admin, &secrets.admin)).await?,
            metrics,
        })
    }

    /// Counts the connections that they refuse.
    pub(super) fn refusals(&self) -> Arc<dyn Monitored> {
        let gateway = self.gateway.as_ref().map(|(listener, _)| listener);
        let some = [
            self.grpc.as_ref(),
            self.http.as_ref(),
            gateway,
            Some(&self.admin),
            self.metrics.as_ref(),
        ];
        let counts = some.into_iter().flatten().map(Listener::refused);
        Arc::new(RefusedConnections(counts.collect()))
    }
}

/// The connections that listeners closed because their address had its full share.
#[derive(Debug)]
struct RefusedConnections(Vec<(&'static str, RefusedCount)>);

impl Monitored for RefusedConnections {
    fn encode(&self, families: &mut Families<'_>) -> fmt::Result {
        let counts = self
            .0
            .iter()
            .map(|(listener, refused)| (*listener, refused.get()));
        families.counters(
            "ratelimit_connections_refused",
            "Connections closed at once because their address had its full share",
            by("listener", counts),
        )
    }

    /// They are the client's: `connections_per_address_max` is there for them.
    fn faults(&self) -> Vec<String> {
        Vec::new()
    }

    fn subject(&self) -> &'static str {
        "connections"
    }
}

async fn bind(opening: Opening<'_>) -> Result<Listener, BindError> {
    let (name, address) = (opening.name, opening.address.clone());
    let bound = Listener::bind(opening).await;
    bound.map_err(|source| BindError::Listen {
        name,
        address,
        source,
    })
}

/// The certificates of all listeners.
pub(super) struct Secrets {
    grpc: Option<Arc<Tls>>,
    http: Option<Arc<Tls>>,
    admin: Option<Arc<Tls>>,
    metrics: Option<Arc<Tls>>,
    gateway: Option<Arc<Tls>>,
}

impl Secrets {
    pub(super) fn load(config: &ServerConfig) -> Result<Self, BindError> {
        let listeners = &config.tls;
        let gateway = config
            .gateway
            .as_ref()
            .and_then(|gateway| gateway.tls.clone());
        let load = |name, protocol, config: &Option<TlsConfig>| match config {
            None => Ok(None),
            Some(config) => Tls::load(name, protocol, config.clone())
                .map(|tls| Some(Arc::new(tls)))
                .map_err(|source| BindError::Tls { name, source }),
        };
        Ok(Self {
            grpc: load("grpc", Protocol::Http2, &listeners.grpc)?,
            http: load("http", Protocol::Http1, &listeners.http)?,
            admin: load("admin", Protocol::Http1, &listeners.admin)?,
            metrics: load("metrics", Protocol::Http1, &listeners.metrics)?,
            gateway: load("listen", Protocol::Either, &gateway)?,
        })
    }

    /// Returns true if the admin listener requires client certificates.
    pub(super) fn admin_is_closed(&self) -> bool {
        self.admin.as_ref().is_some_and(|tls| tls.asks_for_names())
    }

    pub(super) fn all(&self) -> Vec<Arc<Tls>> {
        let all = [
            &self.grpc,
            &self.http,
            &self.admin,
            &self.metrics,
            &self.gateway,
        ];
        all.into_iter().flatten().cloned().collect()
    }
}
