//! Permits and reservations by caller.

use ratekeeper_store::Store;

use crate::Limiter;

/// The permits and reservations of one caller, which no other caller can renew, release or
/// settle.
#[derive(Debug)]
pub struct CallerHolds<'a, S> {
    pub(super) limiter: &'a Limiter<S>,
    pub(super) name: &'a str,
}

impl<S: Store> Limiter<S> {
    /// The caller of this name, as the edge has authenticated it; empty for all unauthenticated
    /// callers.
    pub const fn caller<'a>(&'a self, name: &'a str) -> CallerHolds<'a, S> {
        CallerHolds {
            limiter: self,
            name,
        }
    }
}
