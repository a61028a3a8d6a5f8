//! The memory store does what every store must.

use ratekeeper_store::{MemoryConfig, MemoryStore};

ratekeeper_testkit::conformance!(|| MemoryStore::new(MemoryConfig::default()).unwrap());
