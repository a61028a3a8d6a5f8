//! Parts of the service that tell of themselves beside the limiter.

use std::fmt;

use serde::Serialize;

use super::families::Families;

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
