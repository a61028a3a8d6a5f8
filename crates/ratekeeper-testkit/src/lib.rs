//! What the tests share: the reference model and the store conformance suite.

pub mod conformance;
pub mod model;
pub mod paired;
