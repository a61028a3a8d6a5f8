//! The calls made to Redis, and the meaning of its answers.
//!
//! Requests become [`Group`]s (those that wait for the same counters under the same limits are one
//! group), any number of groups becomes one [`Call`] of the script, and [`decode`] turns the answer
//! into the [`Verdicts`](ratekeeper_store::Verdicts) of each request. All of it is pure.
//!
//! The script decides: it reads the counters at the server's own time, decides what passes, and
//! charges it. The quota left and the time to come back are computed here, by running the states
//! that the script read through the same steps of `ratekeeper-core`: Redis has one core, and nodes
//! have many. The two must agree on what passed, or the answer is refused as
//! [`AnswerError::Disagrees`].
//!
//! A [`LeaseCall`] takes a lease or gives one back: calls of their own, by the same script.
//!
//! A [`Post`](ratekeeper_store::Post) is a group of its own kind.
//!
//! A [`SyncCall`] adds to a synced counter, by a script of its own.
//!
//! The scripts lie beside this file, one for each algorithm and `decide.lua`, which documents
//! arguments and results; [`Script::new`] joins them into one, and puts numbers in place of the
//! algorithms' names. The same script serves every
//! algorithm, so that one call can decide them all.

mod algorithm;
mod call;
mod denied_counters;
mod group;
mod item;
mod key;
mod lease;
mod loans;
mod params;
mod post;
mod replay;
mod reply;
mod state;
mod synced;
mod text;

pub use call::Call;
pub(crate) use denied_counters::DeniedCounters;
pub use group::Group;
pub use item::{AnswerError, Item};
pub use key::{KeyName, slot};
pub(crate) use key::{SLOTS, slot_of_key};
pub use lease::{LeaseCall, LeaseOutcome, SettledCounter, decode_lease_calls};
pub use loans::decode_loans;
pub use reply::decode;
pub(crate) use reply::{GroupNote, ScriptFooter, decode_and_keep};
pub use synced::{SyncAnswer, SyncCall, decode_sync};
pub use text::{Clock, Script};
