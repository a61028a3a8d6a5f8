//! The state that all connections of a store share.

use std::sync::atomic::AtomicU64;
use std::sync::{Arc, OnceLock};

use ratekeeper_store::{HeardRegions, boot_time};

use crate::denied::Denied;
use crate::generation::Generation;
use crate::loan_demands::LoanDemands;
use crate::nodes::Nodes;
use crate::script::{Call, Clock, KeyName, Script};

/// The state that all connections of a store share to ask, and to keep what they learn.
#[derive(Debug)]
pub(crate) struct ScriptContext {
    pub(crate) script: Script,
    pub(crate) clock: Clock,
    pub(crate) names: KeyName,
    pub(crate) denied: Denied,
    pub(crate) nodes: Nodes,
    /// The generation of the region, in which what it holds of others for a time counts.
    pub(crate) generation: Generation,
    pub(crate) loan_demands: LoanDemands,
    /// The times at which other regions were heard, if this node is in one.
    pub(crate) heard: OnceLock<Arc<HeardRegions>>,
    /// The latest time told to a server, in microseconds; it never goes back.
    pub(crate) told: AtomicU64,
}

impl ScriptContext {
    /// Tells a call what this node knows of its region and of others.
    pub(crate) fn set_region(&self, call: &mut Call) {
        call.set_generation(self.generation.get());
        let heard = self.heard.get().cloned();
        call.set_heard(heard.map(|heard| (heard, boot_time())));
    }
}
