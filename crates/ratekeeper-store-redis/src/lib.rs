//! Counters in Redis or Valkey, shared by several nodes.
//!
//! [`script`] makes the calls to Redis and reads its answers: pure functions over bytes, which know
//! no connection. [`RedisStore`] carries them there and back: groups waiting at the same time are
//! sent together, requests for the same counters are decided together, and known denials are not
//! asked for again. A server that fails is left alone until it answers a probe; meanwhile every
//! decision fails at once, and the caller applies its failure mode.

mod answers;
mod background;
mod batch;
mod breaker;
mod clock;
mod config;
mod connections;
mod denied;
mod discovery;
mod endpoint;
mod fleet;
mod generation;
mod greeting;
mod hash_key;
mod journal;
mod key_link;
mod lease;
mod link;
mod loan_demands;
mod loans;
mod metrics;
mod monitor;
mod node;
mod node_board;
mod nodes;
mod pipeline;
mod probe;
mod queue;
mod replicas;
mod rights;
pub mod script;
mod script_context;
mod sentinel;
mod server_error;
mod server_status;
mod servers;
mod shard;
mod shard_connection;
mod shared;
mod side_connection;
mod side_link;
mod side_sender;
mod slots;
mod stall;
mod store;
mod stream;
mod survey;
mod synced;
mod texts;
mod topology;
mod waiting;
mod wire;

pub use breaker::Circuit;
pub use config::RedisConfig;
pub use endpoint::{Endpoint, EndpointError};
pub use fleet::{FleetBoard, FleetReport};
pub use key_link::KeyError;
pub use link::LinkError;
pub use metrics::ShardCounts;
pub use node_board::{NodeBoard, NodeList, NodeLists};
pub use server_status::ServerStatus;
pub use servers::RedisServers;
pub use side_connection::BoardError;
pub use store::RedisStore;
pub use stream::StreamWriter;
pub use texts::{TextKey, Texts};
