//! The memory store passes the conformance suite.

use ratekeeper_store::{MemoryConfig, MemoryStore};

ratekeeper_testkit::conformance!(|| MemoryStore::new(MemoryConfig::default()).unwrap());
