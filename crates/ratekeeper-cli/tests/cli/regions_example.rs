//! `examples/regions`: one command starts three regions that lend, and its end ends them.

use crate::support::{http, repository};
use ratekeeper_testkit::process::{Process, eventually, free_port};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::Command;
use tempfile::tempdir;

#[test]
fn the_example_starts_regions_that_lend() {
    let folder = tempdir().expect("a folder can be made");
    let binary = Path::new(env!("CARGO_BIN_EXE_ratekeeper"));
    let path = format!(
        "{}:{}",
        binary.parent().expect("it lies in a folder").display(),
        std::env::var("PATH").unwrap_or_default()
    );
    let ports = [(); 3].map(|()| [(); 4].map(|()| free_port()));
    let mut command = Command::new("sh");
    command
        .current_dir(folder.path())
        .arg(repository().join("examples/regions/start.sh"))
        .env_clear()
        .env("PATH", path);
    for (name, ports) in ["AP", "EU", "US"].iter().zip(&ports) {
        command.env(name, ports.map(|port| port.to_string()).join(","));
    }
    let mut example = Process::spawn("start.sh", command);
    ports
        .iter()
        .flatten()
        .for_each(|port| example.wait_for_port(*port));
    let at = |port: u16| SocketAddr::from(([127, 0, 0, 1], port));
    let [_, eu_http, eu_admin, _] = ports[1];
    eventually("eu has links to both others", || {
        let (_, metrics) = http(at(eu_admin), "GET", "/metrics", "");
        let mut reached = metrics.lines();
        let is_up =
            |line: &&str| line.starts_with("ratelimit_region_reachable") && line.ends_with(" 1");
        reached.by_ref().filter(is_up).count() == 2
    });
    let check =
        r#"{"domain":"shop","descriptors":[{"entries":[{"key":"customer","value":"acme"}]}]}"#;
    eventually("eu has borrowed", || {
        for _ in 0..20 {
            let (status, body) = http(at(eu_http), "POST", "/v1/check", check);
            assert_eq!(status, 200, "{body}");
        }
        let (_, metrics) = http(at(eu_admin), "GET", "/metrics", "");
        let mut borrowed = metrics.lines();
        borrowed
            .any(|line| line.starts_with("ratelimit_region_borrowed_hits") && !line.ends_with(" 0"))
    });
    example.terminate();
    for port in ports.iter().flatten() {
        eventually("nothing of it is left", || {
            TcpStream::connect(at(*port)).is_err()
        });
    }
}
