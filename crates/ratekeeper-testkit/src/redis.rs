//! Real Redis servers for tests, each in its own folder and on free ports, and a blocking client.
//!
//! ```no_run
//! use ratekeeper_testkit::redis::{Client, Server};
//!
//! let server = Server::start();
//! let mut client = Client::connect(server.port());
//! client.ask(&["SET", "key", "value"]);
//! ```

mod client;
mod clock;
mod cluster;
mod sentinel;
mod server;

pub use client::{Client, Reply, encode};
pub use cluster::Cluster;
pub use sentinel::{PRIMARY, Sentinels};
pub use server::{Server, is_7_or_later};

/// These ports of this host, as a URL names several servers.
#[must_use]
pub fn hosts(ports: &[u16]) -> String {
    let hosts = ports.iter().map(|port| format!("127.0.0.1:{port}"));
    hosts.collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests;
