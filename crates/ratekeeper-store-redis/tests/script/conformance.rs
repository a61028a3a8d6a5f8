//! The conformance tests of all stores, for the script.

use ratekeeper_testkit::redis::Server;

use crate::told::Told;

ratekeeper_testkit::conformance!({
    let server = Server::start();
    move || Told::new(&server)
});
