//! The conformance tests of all stores, for the script.

use ratekeeper_testkit::redis::Server;

use crate::timed_store::TimedStore;

ratekeeper_testkit::conformance!({
    let server = Server::start();
    move || TimedStore::new(&server)
});
