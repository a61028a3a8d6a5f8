//! The gateway's listener, which stands in front of somebody else's service.

use std::fmt;
use std::future::{Future, pending, ready};
use std::sync::Arc;
use std::time::Duration;

use crate::figures::families::Families;
use crate::figures::monitored::Monitored;
use crate::listen::tls::TlsConfig;
use crate::listen::{HttpService, ListenAddress, ServerBounds};
use crate::reload::follow::Followed;

/// The settings of the gateway's listener. It speaks HTTP/1.1 and HTTP/2, and connections may be
/// upgraded.
#[derive(Clone, Debug)]
pub struct GatewayListener {
    /// The address it listens on.
    pub address: ListenAddress,
    /// Its certificate, if it encrypts.
    pub tls: Option<TlsConfig>,
    /// Its limits. The time of a request and the size of its body are for the [`GatewayService`] to bound.
    pub bounds: ServerBounds,
}

/// The service behind the gateway's listener. The worker threads that serve checks serve it too,
/// each with its own [`Self::Service`], so that its state (connections to an upstream) never crosses
/// threads.
pub trait GatewayService: Monitored {
    /// The service that one worker runs.
    type Service: HttpService;

    /// Creates the service of the next worker; called once for each.
    fn service(&self) -> Self::Service;

    /// Its own files, which are followed as certificates are.
    fn files(&self) -> Option<Arc<dyn Followed>> {
        None
    }

    /// Its background work, which runs as long as the server does, on the thread that serves
    /// operators.
    fn maintenance(&self) -> impl Future<Output = ()> + Send + 'static {
        pending()
    }

    /// Waits for work whose clients are gone, for at most `patience` after the last connection was closed; then cuts it off.
    /// Returns how many requests were.
    fn settle(&self, patience: Duration) -> impl Future<Output = usize> + Send {
        let _ = patience;
        ready(0)
    }
}

/// The gateway of a server without one: it has no values.
#[derive(Clone, Copy, Debug)]
pub(crate) enum NoGateway {}

impl Monitored for NoGateway {
    fn encode(&self, _: &mut Families<'_>) -> fmt::Result {
        match *self {}
    }

    fn faults(&self) -> Vec<String> {
        match *self {}
    }

    fn subject(&self) -> &'static str {
        match *self {}
    }
}

impl GatewayService for NoGateway {
    // Any service would do.
    type Service = axum::Router;

    fn service(&self) -> axum::Router {
        match *self {}
    }
}
