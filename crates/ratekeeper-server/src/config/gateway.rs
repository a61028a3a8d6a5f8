//! The gateway's listener, which stands in front of somebody else's service.

use std::fmt;
use std::future::{Future, pending, ready};
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;

use crate::figures::families::Families;
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

/// A part of the service, other than the limiter, with its own metrics and faults.
pub trait Monitored: fmt::Debug + Send + Sync + 'static {
    /// Its metrics, as they are now.
    ///
    /// # Errors
    /// The text cannot be written.
    fn encode(&self, families: &mut Families<'_>) -> fmt::Result;

    /// The current faults, for `/readyz`.
    fn faults(&self) -> Vec<String>;

    /// The names of its background tasks, each with the number of times that it ended early and was begun again.
    fn tasks(&self) -> Vec<(&'static str, u64)> {
        Vec::new()
    }

    /// Requests that it has refused because of overload.
    fn shed(&self) -> u64 {
        0
    }

    /// The state of its load shedders, for operators; None if it has none.
    fn shedding(&self) -> Option<Shedding> {
        None
    }

    /// The name of the part, for clients that are not shown its faults.
    fn subject(&self) -> &'static str;
}

/// The state of load shedders.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Shedding {
    /// Requests in flight on this node that are not critical.
    pub fleet_own: u32,
    /// The same on all other nodes, by their last report.
    pub fleet_others: u32,
    /// True if that report is old, because newer ones could not be had.
    pub fleet_is_stale: bool,
    /// The upstreams.
    pub upstreams: Vec<UpstreamShedding>,
}

/// The state of the load shedders of one upstream.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct UpstreamShedding {
    /// The name of the upstream.
    pub name: String,
    /// The adaptive limit on its requests in flight.
    pub limit: u32,
    /// Its requests in flight.
    pub in_flight: u32,
    /// The utilisation that the worker-utilisation shedder goes by: 1 is fully used.
    pub utilisation: f64,
    /// The part of all requests that it wants shed, from 0 to 1.
    pub share_shed: f64,
    /// The priority classes, the least important first.
    pub classes: Vec<ClassShedding>,
}

/// The treatment of one priority class by the load shedders of an upstream.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct ClassShedding {
    /// The part of the class that the worker-utilisation shedder sheds, from 0 to 1.
    pub part_shed: f64,
    /// The adaptive limit for this class.
    pub limit: u32,
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
