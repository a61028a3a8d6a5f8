//! The nodes that lease counters of a store: each enters itself into Redis once a second.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use redis::Cmd;

use crate::side_link::random_name;

/// This node among those that lease.
#[derive(Debug)]
pub(crate) struct Nodes {
    /// The name of this node, random.
    name: String,
    has_joined: AtomicBool,
    /// Nodes seen lately; 0 before that is known.
    seen: AtomicU64,
}

impl Nodes {
    pub(crate) fn new() -> Self {
        Self {
            // Without random numbers there are no leases either.
            name: random_name(),
            has_joined: AtomicBool::new(false),
            seen: AtomicU64::new(0),
        }
    }

    /// Enters this node from now on.
    pub(crate) fn join(&self) {
        self.has_joined.store(true, Ordering::Relaxed);
    }

    /// The number of nodes seen lately; 0 before that is known.
    pub(crate) fn seen(&self) -> u64 {
        self.seen.load(Ordering::Relaxed)
    }

    /// The key that lists the nodes.
    pub(crate) fn key(prefix: &str) -> String {
        format!("{prefix}nodes")
    }

    /// The command that enters this node and counts all of them; [`None`] if it leases nothing.
    pub(crate) fn enter(&self, key: &str) -> Option<Cmd> {
        if !self.has_joined.load(Ordering::Relaxed) {
            return None;
        }
        let mut command = redis::cmd("EVAL");
        command.arg(include_str!("script/nodes.lua"));
        command.arg(1).arg(key).arg(&self.name);
        Some(command)
    }

    /// Takes in the number of nodes.
    pub(crate) fn observe(&self, nodes: u64) {
        self.seen.store(nodes, Ordering::Relaxed);
    }
}
