//! The time for which a request keeps its place at an upstream.

use std::sync::Arc;

use ratekeeper_tower::InFlight;

use super::progress::Progress;
use crate::upstream::Place;

/// A request's place at its upstream, free once this is dropped.
#[derive(Debug)]
pub(crate) struct HeldPlace {
    _alone: Option<Place>,
    /// Holds the place also while the request's body is being sent.
    _with_request: Option<Arc<Progress>>,
    /// The slot that shedders count it in.
    _in_flight: Option<InFlight>,
}

impl HeldPlace {
    pub(crate) fn new(place: Place, progress: Option<&Arc<Progress>>) -> Self {
        let alone = match progress {
            None => Some(place),
            Some(progress) => {
                // A request has one upstream, and so one place.
                let _ = progress.place.set(place);
                None
            }
        };
        Self {
            _alone: alone,
            _with_request: progress.map(Arc::clone),
            _in_flight: None,
        }
    }

    /// Holds `in_flight` as well.
    pub(crate) fn with(self, in_flight: Option<InFlight>) -> Self {
        Self {
            _in_flight: in_flight,
            ..self
        }
    }
}
