//! The stores of a service: memory, and those whose counters all nodes share, joined by name.
//!
//! [`SharedStore`] is the interface of a store that nodes share, and [`StoreReply`] the future of its answer, the same
//! for all of them. [`Stores`] joins them with memory: a service asks it, and does not know which kinds there are.

mod gauges;
mod leased;
mod reply;
mod shared;
mod stores;
mod upkeep;

pub use gauges::{Agreement, ServerGauges, StoreGauges};
pub use reply::{Decided, ReplySender, StoreReply};
pub use shared::{BoxFuture, SharedStore};
pub use stores::{Backend, NAMED_STORES_MAX, Stores, StoresTicket};
