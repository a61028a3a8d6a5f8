//! The state of a gateway.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use ratekeeper_http::Forwarding;
use ratekeeper_server::{DenialLog, Patience, Peer};
use ratekeeper_tower::{Shedder, Switch};
use ratekeeper_trace::Tracer;
use tokio::sync::Notify;

use crate::fleet::FleetPeers;
use crate::head::Inbound;
use crate::log::AccessLog;
use crate::metrics::UpstreamCounts;
use crate::peek::BodyNeeds;
use crate::routes::Routes;
use crate::upstream::KeptUpstream;

/// The state that all workers share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) routes: ArcSwap<Routes>,
    /// Notifies tasks that follow the routes in force when those are replaced.
    pub(crate) replaced: Notify,
    pub(crate) forwarding: Forwarding,
    pub(crate) scheme: &'static str,
    pub(crate) body_bytes_max: u64,
    /// The mode of the limits.
    pub(crate) limits: Switch,
    /// The parts of bodies that decisions need.
    pub(crate) body_needs: BodyNeeds,
    pub(crate) patience: Patience,
    pub(crate) tunnel_silence_max: Duration,
    pub(crate) log: Option<AccessLog>,
    pub(crate) denials: Arc<DenialLog>,
    /// None while nothing is traced.
    pub(crate) tracer: Option<Tracer>,
    pub(crate) shedder: Arc<Shedder>,
    /// The other gateways of the fleet, if there are any.
    pub(crate) fleet: Option<Arc<dyn FleetPeers>>,
    /// Counts of requests that no upstream answered.
    pub(crate) own: UpstreamCounts,
    /// The kept state of each upstream, by its name; also of those that were removed, since counters must not go back.
    pub(crate) kept: Mutex<BTreeMap<Box<str>, Arc<KeptUpstream>>>,
}

impl Shared {
    /// The connection of a request from `peer`.
    pub(crate) fn inbound<'a>(&'a self, peer: Option<&'a Peer>) -> Inbound<'a> {
        Inbound {
            peer,
            scheme: self.scheme,
            forwarding: &self.forwarding,
        }
    }

    pub(crate) fn kept_of(&self, name: &str) -> Arc<KeptUpstream> {
        Arc::clone(self.kept.lock().entry(name.into()).or_default())
    }
}
