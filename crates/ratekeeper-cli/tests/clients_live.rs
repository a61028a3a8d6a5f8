//! The clients for TypeScript and Python against the binary: they measure what passes in a time.

#![cfg(unix)]

#[path = "shared/clients.rs"]
mod copied;

use copied::Clients;
use ratekeeper_testkit::process::output_of;

/// One after the other, since both measure.
#[test]
fn both_clients_keep_to_the_limits_of_the_binary() {
    let clients = Clients::shared();
    clients.build_typescript();
    clients.node_test("test/live/*.test.ts");
    output_of(
        clients
            .python()
            .args(["-m", "unittest", "discover", "-s", "tests/live"]),
    );
}
