//! The conformance tests of all stores, for one server.

use ratekeeper_store_redis::RedisStore;
use ratekeeper_store_redis::script::Clock;
use ratekeeper_testkit::redis::Server;

use crate::support::{endpoint, home, patient};

ratekeeper_testkit::conformance!({
    let server = Server::start();
    move || RedisStore::with_clock(endpoint(&server), patient(), Clock::FromCaller, home())
});
