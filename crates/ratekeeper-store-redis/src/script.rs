//! What is asked of Redis, and what its answers mean.
//!
//! Requests become [`Group`]s (those that wait for the same counters under the same limits are
//! one group), any number of groups becomes one [`Call`] of the script, and [`decode`] makes the
//! answer the [`Verdicts`](ratekeeper_store::Verdicts) of each request. All of it is pure.
//!
//! The script decides: it reads the counters at the server's own time, says what passes, and
//! charges it. What is left and when to come back is found here, by stepping the states that
//! the script has read through the very steps of `ratekeeper-core`: Redis has one core, and
//! nodes have many. The two must agree on what passed, or the answer is refused as
//! [`AnswerError::Disagrees`].
//!
//! The scripts lie beside this file, one for each algorithm and `decide.lua`, which says what is
//! passed and returned; [`Script::new`] puts them together into one. Whatever the algorithms of
//! a call are, it is one script, so that one call can decide them all.

mod call;
mod group;
mod key;
mod known;
mod params;
mod replay;
mod reply;
mod state;
#[cfg(test)]
mod tests;
mod text;

pub use call::Call;
pub use group::Group;
pub use key::{KeyName, slot};
pub(crate) use key::{SLOTS, slot_of_key};
pub(crate) use known::Known;
pub use reply::{AnswerError, Item, decode};
pub(crate) use reply::{Aside, Told, decode_and_keep};
pub use text::{Clock, Script};
