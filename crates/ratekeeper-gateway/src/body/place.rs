//! The time for which a request keeps its place at an upstream.

use std::sync::Arc;

use super::Progress;
use crate::upstream::Place;

/// A request's place at its upstream.
#[derive(Debug)]
pub(crate) enum HeldPlace {
    Alone(#[allow(dead_code, reason = "it is held, and dropped")] Place),
    /// Held also while the request's body is being sent.
    WithRequest(#[allow(dead_code, reason = "it is held, and dropped")] Arc<Progress>),
}

impl HeldPlace {
    pub(crate) fn new(place: Place, progress: Option<&Arc<Progress>>) -> Self {
        match progress {
            None => Self::Alone(place),
            Some(progress) => {
                // A request has one upstream, and so one place.
                let _ = progress.place.set(place);
                Self::WithRequest(Arc::clone(progress))
            }
        }
    }
}
