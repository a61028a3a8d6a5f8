//! The state of an upstream that outlives its routes.

use std::sync::Arc;

use parking_lot::Mutex;
use ratekeeper_tower::Site;

use super::request_slots::{RequestSlots, SlotLimits};
use crate::abandoned::Abandoned;
use crate::metrics::UpstreamCounts;

/// The state that is kept by the name of the upstream when routes are replaced: counters must not go back, and requests that
/// are under way still occupy slots, and are still waited for.
#[derive(Debug, Default)]
pub(crate) struct KeptUpstream {
    pub(crate) counts: Arc<UpstreamCounts>,
    slots: Mutex<Option<RequestSlots>>,
    pub(crate) abandoned: Abandoned,
    /// The state of its shedders.
    pub(crate) site: Arc<Site>,
}

impl KeptUpstream {
    /// The upstream's slots, within these limits.
    pub(crate) fn slots(&self, limits: SlotLimits) -> RequestSlots {
        let asked = RequestSlots::new(limits);
        let mut slots = self.slots.lock();
        let same = slots.take().filter(|slots| slots.is_as(&asked));
        slots.insert(same.unwrap_or(asked)).clone()
    }
}
