//! The first run: the example configuration and the commands that it prints.

use crate::support::{commands, ratekeeper, repository};
use ratekeeper_testkit::assert_contains;
use ratekeeper_testkit::process::{Process, free_port, output_of};
use std::process::Command;

#[test]
fn a_bare_run_serves_the_example_and_its_three_commands_work_when_pasted() {
    let mut command = ratekeeper(&repository(), "");
    for name in ["RATEKEEPER_GRPC", "RATEKEEPER_HTTP", "RATEKEEPER_ADMIN"] {
        command.env(name, format!("127.0.0.1:{}", free_port()));
    }
    command.env("RATEKEEPER_DRAIN_DELAY", "0s");
    let mut service = Process::spawn("ratekeeper", command);
    service.wait_for_output("rules explain");
    let log = service.output();
    let [ask, metrics, explain] = commands(&log);
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
    assert_contains(&explained, "would be denied");
    assert!(service.terminate().success());
}

/// Runs a line as a shell does. It needs curl, which `cargo xtask test` installs.
fn paste(line: &str) -> String {
    output_of(Command::new("sh").args(["-c", line]))
}
