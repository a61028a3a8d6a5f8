//! Counters in Redis or Valkey, shared by several nodes.
//!
//! [`script`] makes the calls to Redis and reads its answers: pure functions over bytes, which know
//! no connection. [`RedisStore`] carries them there and back: groups waiting at the same time are
//! sent together, requests for the same counters are decided together, and known denials are not
//! asked for again. A server that fails is left alone until it answers a probe; meanwhile every
//! decision fails at once, and the caller applies its failure mode.

// A decision's way: `store` (as limiters see it) or `shared` (as one of several stores), `servers` (the servers of one store), `slots`
// (the connections of each runtime), `connections`, `shard_connection`, `queue` with `waiting` and `batch`, `pipeline`, `wire`, `link`.
// What all runtimes share: `shard` (one server) with its `breaker` and `metrics`, `denied`, `script_context`.
// Counters that this node decides in part: `lease`, `replicas` and `nodes` (who leases), `synced`, `loans` and `loan_demands`.
// Calls that no request waits for: `side_sender` and `side_connection`. Over a `side_link`: `node_board` and `fleet` (what nodes
// tell each other), `stream`; `key_link` and `texts` read other keys than those of counters.
// Where the servers are: `endpoint` (a URL), `node` (an address), `topology`, `survey` (of a cluster), `sentinel`, `discovery`.
// Upkeep, in tasks of `background`: `monitor`, `greeting`, `rights`, `probe`, `hash_key`, `generation` with `clock`, `stall`.
// What is told of them: `server_status`, `server_error`, `journal`, `answers` (their bounds).
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
mod server_address;
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
