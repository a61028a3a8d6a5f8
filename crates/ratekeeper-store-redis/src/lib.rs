//! Counters in Redis or Valkey, shared by several nodes.
//!
//! [`script`] makes the calls to Redis and reads its answers: pure functions over bytes, which know
//! no connection. [`RedisStore`] carries them there and back: groups waiting at the same time are
//! sent together, requests for the same counters are decided together, and known denials are not
//! asked for again. A server that fails is left alone until it answers a probe; meanwhile every
//! decision fails at once, and the caller applies its failure mode.

mod answers;
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
mod lease;
mod link;
mod metrics;
mod node;
mod nodes;
mod probe;
mod queue;
mod rights;
pub mod script;
mod seed;
mod sentinel;
mod served;
mod shard;
mod slots;
mod stall;
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
