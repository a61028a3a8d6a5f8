//! Checks the tree of a file and turns it into nodes and rules.

mod concurrency;
pub(crate) mod context;
pub(crate) mod descriptors;
pub(crate) mod fields;
pub(crate) mod levels;
mod limits;
mod metadata;
pub(crate) mod nearest;
mod plans;
pub(crate) mod policy;
pub(crate) mod root;
pub(crate) mod service_levels;
mod window;
