//! The conformance tests of all stores, for the script.

use ratekeeper_testkit::redis::Server;

use crate::timed_store::TimedStore;

ratekeeper_testkit::conformance!({
    let server = Server::start();
    move || TimedStore::new(&server)
});

ratekeeper_testkit::conformance_of_lives!({
    let server = Server::start();
    move || {
        let store = TimedStore::new(&server);
        let life = store.lives(&server);
        (store, life)
    }
});
