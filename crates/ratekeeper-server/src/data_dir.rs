//! The data folder: what outlives a restart of this node.

pub(crate) mod atomic_file;
pub(crate) mod fleet_switches;
pub(crate) mod switches;
