//! Counters in Redis or Valkey, shared by several nodes.
//!
//! [`script`] says what is asked of Redis and reads what it answers: pure functions over bytes,
//! which know no connection. [`RedisStore`] brings them there and back: what waits at the same
//! time is sent together, requests for the same counters are decided together, and what is known
//! to be denied is not asked again. A server that fails is left alone until it answers a probe;
//! meanwhile every decision fails at once, and whoever asked goes by its failure mode.

mod batch;
mod breaker;
mod clock;
mod config;
mod denied;
mod endpoint;
mod flight;
mod greeting;
mod journal;
mod keeper;
mod lane;
mod lanes;
mod link;
mod metrics;
mod node;
mod probe;
mod queue;
mod rights;
pub mod script;
mod seed;
mod sentinel;
mod served;
mod shard;
mod slots;
mod store;
mod survey;
mod ticket;
mod topology;
mod wire;

pub use breaker::Circuit;
pub use config::RedisConfig;
pub use endpoint::{Endpoint, EndpointError};
pub use keeper::ServerStatus;
pub use link::LinkError;
pub use metrics::ShardCounts;
pub use store::RedisStore;
pub use ticket::Ticket;
