//! The script does what every store must.

use ratekeeper_testkit::redis::Server;

use crate::told::Told;

ratekeeper_testkit::conformance!({
    let server = Server::start();
    move || Told::new(&server)
});
