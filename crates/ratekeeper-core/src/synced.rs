//! Synced counters: each node counts by itself, and adds its count to a shared store from time to time.
//!
//! ```text
//!  store          0 ----- +40 = 40 ---- +25 = 65 ---- +30 = 95 ------>
//!                        /    \        /    \        /
//!  node a   40 admitted -      \      /      `- others: 25
//!  node b   25 admitted --------`----- others: 40
//! ```
//!
//! Both sides are pure:
//!
//! - **A node's**: a [`SyncedCounter`] holds, for each (sub-)window, the hits that this node admitted and those that the
//!   others had added when the store last answered. Their sum is tested against the limit.
//! - **The store's**: an integer for each (sub-)window, and beside it a mark for each node: the number of the last
//!   [`Addition`] and the node's total as of then.
//!
//! **Each hit is added once.** An addition carries the node's *total* for a (sub-)window. The store adds the difference from
//! the total in the mark, and ignores numbers that are not above the mark's. So a repeat adds nothing, an addition that
//! arrives late adds nothing, and one that is lost is made up for by the next. If the store loses counts, it loses the
//! marks with them, and the next additions bring the totals back.
//!
//! **What passes beyond the limit.** A node admits while its own hits and those it knows of fit. So at the moment of the last
//! admission the total exceeds the limit at most by what that node did not know of: hits that the other nodes admitted
//! since they last added theirs, and since this node last heard of them. With an interval i and a round trip r that is what
//! the others admit within 2 i + r, and never more than the limit for each of them. A node that meets a counter for the
//! first time in an interval knows nothing of the others until the store answers: add what it admits within a round trip.

mod counter;
mod terms;

pub use counter::{Addition, KnownHits, StoredSum, SyncedCounter};
pub use terms::{
    DEFAULT_INTERVAL, DEFAULT_SUB_WINDOWS, INTERVAL_MAX, INTERVAL_MIN, SyncTerms, Unsyncable,
};
