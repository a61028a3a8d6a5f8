//! Checks the tree of a file and turns it into nodes and rules.

pub(crate) mod adjust;
mod concurrency;
pub(crate) mod descriptors;
pub(crate) mod levels;
pub(crate) mod limits;
pub(crate) mod plans;
pub(crate) mod policy;
pub(crate) mod root;
pub(crate) mod service_levels;
pub(crate) mod shed;
mod usage;
