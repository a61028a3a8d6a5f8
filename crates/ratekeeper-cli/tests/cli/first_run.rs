//! The first run: the example configuration and the commands that it prints.

use crate::support::{Service, ratekeeper, repository};
use std::process::Command;
use tempfile::tempdir;

#[test]
fn a_bare_run_serves_the_example_and_its_three_commands_work_when_pasted() {
    let folder = tempdir().expect("a folder can be made");
    let mut command = ratekeeper(&repository(), &[]);
    for name in ["RATEKEEPER_GRPC", "RATEKEEPER_HTTP", "RATEKEEPER_ADMIN"] {
        command.env(name, "127.0.0.1:0");
    }
    command.env("RATEKEEPER_DRAIN_DELAY", "0s");
    let service = Service::start(command, folder.path());
    let [ask, metrics, explain] = &service.commands[..] else {
        panic!("there are not three commands: {:?}", service.commands);
    };

    let log = service.log();
    assert!(
        !log.contains("WARN"),
        "the example starts with a warning: {log}"
    );

    let asked = paste(ask);
    let decisions: Vec<serde_json::Value> = asked
        .lines()
        .map(|line| serde_json::from_str(line).expect("each answer is JSON"))
        .collect();
    let (last, before) = decisions.split_last().expect("there were answers");
    assert_eq!(last["decision"], "deny", "{asked}");
    assert!(
        before.iter().all(|answer| answer["decision"] == "allow"),
        "{asked}"
    );

    assert!(paste(metrics).contains("ratelimit_decisions_total{"));
    let explained = paste(explain);
    assert!(explained.contains("would be denied"), "{explained}");
    assert!(service.stop().success());
}

/// Runs a line as a shell does. It needs curl, which `cargo xtask test` installs.
fn paste(line: &str) -> String {
    let output = Command::new("sh")
        .args(["-c", line])
        .output()
        .expect("there is a shell");
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{line}: {complaint}");
    String::from_utf8(output.stdout).expect("it prints UTF-8")
}
