//! `examples/regions`: one command starts three regions that lend, and its end ends them.

use crate::support::{example, http};
use ratekeeper_testkit::process::{Process, eventually, free_port};
use std::net::{Ipv4Addr, TcpStream};
use tempfile::tempdir;

#[test]
fn the_example_starts_regions_that_lend() {
    let folder = tempdir().expect("a folder can be made");
    let ports = [(); 3].map(|()| [(); 4].map(|()| free_port()));
    let mut command = example(folder.path(), "regions/start.sh");
    for (name, ports) in ["AP", "EU", "US"].iter().zip(&ports) {
        command.env(name, ports.map(|port| port.to_string()).join(","));
    }
    let mut example = Process::spawn("start.sh", command);
    ports
        .iter()
        .flatten()
        .for_each(|port| example.wait_for_port(*port));
    let [_, eu_http, eu_admin, _] = ports[1];
    eventually("eu has links to both others", || {
        let (_, metrics) = http(eu_admin, "GET", "/metrics", "");
        let mut reached = metrics.lines();
        let is_up =
            |line: &&str| line.starts_with("ratelimit_region_reachable") && line.ends_with(" 1");
        reached.by_ref().filter(is_up).count() == 2
    });
    let check =
        r#"{"domain":"shop","descriptors":[{"entries":[{"key":"customer","value":"acme"}]}]}"#;
    eventually("eu has borrowed", || {
        for _ in 0..20 {
            let (status, body) = http(eu_http, "POST", "/v1/check", check);
            assert_eq!(status, 200, "{body}");
        }
        let (_, metrics) = http(eu_admin, "GET", "/metrics", "");
        let mut borrowed = metrics.lines();
        borrowed
            .any(|line| line.starts_with("ratelimit_region_borrowed_hits") && !line.ends_with(" 0"))
    });
    example.terminate();
    for port in ports.iter().flatten() {
        eventually("nothing of it is left", || {
            TcpStream::connect((Ipv4Addr::LOCALHOST, *port)).is_err()
        });
    }
}
