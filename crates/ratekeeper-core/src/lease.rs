//! Leases: hits that a shared counter *holds* for a node, so that the node can admit them without asking.
//!
//! ```text
//!  store   |-- hold 50 ------------------ charge 42, free 8 ------->   room = the algorithm's room - what is held
//!               \ 50, 100 ms             /
//!  node          |== admits 1 + 2 ... = 42 ==| reports what it spent
//!                ^ deadline counts from before the call was sent
//! ```
//!
//! Two sides, both pure:
//!
//! - **The store's**: an [`Escrow`] lies beside the counter's state, with an entry for each node that has a lease.
//!   [`Terms::settle`] takes a node's report and holds hits for it; [`Escrow::expire`] charges the leases whose end has
//!   passed. Every step on the counter runs that first. The store makes each call atomic, and repeats none.
//! - **A node's**: [`Slots`] hold the credit, one word a slot; a [`Session`] counts what was spent, and [`Demand`] how
//!   much to ask for.
//!
//! **Why no more passes.** The hits that a node has not reported and its credit are within its entry, or were charged
//! with it in full: only a call that empties the word frees what is left, a deadline passes before its entry ends, an
//! entry is never replaced by an older call, and each report contains those that were lost. What is recorded and what
//! is held never exceed the capacity together. Hits are recorded late (when they are reported, or at the end of their
//! entry) and never early. On any interval (s, t] a bucket therefore admits at most what is recorded in it and held at t:
//! d(t) + R (t - s) + held(t) <= B + R (t - s).
//!
//! Conditions: node and store clocks run at the same rate, within [`DRIFT_PPM`]; the store loses no entry; no two
//! processes have the same name.
//!
//! The Redis store settles and spends by it, and so do the simulation in `tests/leases` and the model of a slot in
//! `tests/slot_model.rs`.

mod demand;
mod escrow;
mod facts;
mod session;
mod settle;
mod slot;
mod slots;
mod terms;

pub use demand::Demand;
pub use escrow::{CorruptEscrow, ENTRIES_MAX, Escrow, HEADER_BYTES, LEASE_MAX, LeaseEntry, MARK};
pub use facts::Facts;
pub use session::{LeaseAnswer, Session, deadline};
pub use settle::{Holding, LEAST, LeaseReport, Settled};
pub use slot::{CREDIT_MAX, Credit, Slot, Unspent};
pub use slots::{Slots, Taken};
pub use terms::{DRIFT_PPM, PART_OF_CAPACITY, Terms, Unleasable};
