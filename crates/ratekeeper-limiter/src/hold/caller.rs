//! Permits and reservations, by who holds them.

use ratekeeper_store::Store;

use crate::Limiter;

/// Permits and reservations of one caller: what was given to it, nobody else renews, releases or
/// settles.
#[derive(Debug)]
pub struct Caller<'a, S> {
    pub(super) limiter: &'a Limiter<S>,
    pub(super) name: &'a str,
}

impl<S: Store> Limiter<S> {
    /// The caller of that name, as the edge has authenticated it; empty for all those whom nobody
    /// tells apart.
    pub const fn caller<'a>(&'a self, name: &'a str) -> Caller<'a, S> {
        Caller {
            limiter: self,
            name,
        }
    }
}
