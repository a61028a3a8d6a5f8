//! Faults of one server, and of the network to it.

mod network;
mod pauses;
mod scene;
mod server;
mod start;

use crate::fault::Fault;
pub(crate) use scene::Single;

/// All of them.
pub(crate) static FAULTS: &[&[Fault<Single>]] = &[
    start::FAULTS,
    server::FAULTS,
    pauses::FAULTS,
    network::FAULTS,
];
