//! Leases: hits that a node takes from a shared counter in advance, so that it can admit them
//! without asking. Nothing is admitted before it has been charged, so all nodes together never admit
//! more than the limit, whatever is lost, delayed or repeated between them and the store.
//!
//! ```text
//!  store   |-- grant: charge g ------------------------------- return r ---->
//!               \ g, id, ttl                                 /
//!  node          |== spends 1 + 1 + 2 ... = g - r ==| close |
//!                ^ deadline counts from before the request was sent
//! ```
//!
//! Two sides, both pure:
//!
//! - **The store's**: [`Terms::grant`] charges a counter, and [`Terms::give_back`] takes back what was not
//!   spent. The store makes each call atomic, and carries each id out once.
//! - **A node's**: [`Slots`] hold what was granted, one word a slot; [`deadline`] says until when it may be
//!   spent, and [`Demand`] how much to ask for.
//!
//! **Why no more passes.** Each hit that a node admits was charged before, in a window that is still the same
//! (fixed windows and sub-windows: the lease ends with it), or dated no earlier than it can be spent
//! (groups of equal count: those of a leased limit begin a lease time late). In a bucket a hit admitted at a was charged
//! within [a - ttl, a], so on any interval (s, t] at most B' + R (t - s + ttl) are admitted: that is within B + R (t - s)
//! because the store counts with B' = B - R ttl. Buckets therefore get nothing back.
//!
//! Conditions: node and store clocks run at the same rate, within [`DRIFT_PPM`]; all who charge the counter know the
//! lease time; the store loses no charge.
//!
//! The Redis store grants and spends by it, and so do the simulation in `tests/leases` and the model of a slot in
//! `tests/slot_model.rs`.

mod demand;
mod facts;
mod grant;
mod slot;
mod slots;
mod terms;

pub use demand::{Demand, Ended};
pub use facts::Facts;
pub use grant::{Grant, Place, share};
pub use slot::{CREDIT_MAX, Closed, Credit, Slot, Unspent};
pub use slots::{Slots, Taken};
pub use terms::{DRIFT_PPM, LEASED_BURST_MIN, Terms, Unleasable, deadline};
