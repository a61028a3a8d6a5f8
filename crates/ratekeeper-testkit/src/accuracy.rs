//! Measures how accurate the algorithms are: the most hits that pass in any window, and the decisions that differ from
//! those of an exact log.
//!
//! Everything is asked of a [`MemoryStore`](ratekeeper_store::memory::MemoryStore), as a service asks, at times that are
//! told. [`Form`] lists what is measured and what each form promises. [`Arrivals`] are ways in which a caller comes, and
//! [`Adversary`] searches for the way that lets the most through. A [`Ledger`] holds every answer against the truth. The
//! same seed gives the same figures.

mod adversary;
mod arrivals;
mod counters;
mod form;
mod ledger;
mod random;

pub use adversary::{Adversary, Found, Move, Take};
pub use arrivals::Arrivals;
pub use counters::{Counters, Visit};
pub use form::Form;
pub use ledger::{Ledger, Tally};
pub use random::Random;
