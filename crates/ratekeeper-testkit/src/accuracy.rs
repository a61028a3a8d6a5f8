//! Measures the accuracy of the algorithms: the most hits that pass in any window, and the
//! decisions that differ from those of an exact log.
//!
//! All decisions come from a [`MemoryStore`](ratekeeper_store::memory::MemoryStore), as in a
//! service, at given times. [`Form`] lists the forms of limits and their promised bounds.
//! [`Arrivals`] are patterns of requests, and [`Adversary`] searches for the pattern that gets the
//! most through. A [`Ledger`] compares every answer with the exact count. The same seed gives the
//! same figures.

mod adversary;
mod arrivals;
mod counters;
mod form;
mod ledger;

pub use adversary::{Adversary, Found, Move, Take};
pub use arrivals::Arrivals;
pub use counters::{Counters, Visit};
pub use form::Form;
pub use ledger::{Ledger, Tally};
