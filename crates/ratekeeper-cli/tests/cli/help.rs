//! The texts that `-h` and `--help` print.

use crate::support::run;
use ratekeeper_testkit::assert_contains;
use tempfile::tempdir;

fn help(args: &[&str]) -> String {
    let folder = tempdir().expect("a folder can be made");
    run(folder.path(), args).succeeded()
}

#[test]
fn the_short_help_fits_a_screen_and_the_long_one_is_grouped() {
    for command in [&[][..], &["serve"], &["gateway"]] {
        let short = help(&[command, &["-h"]].concat());
        let long = help(&[command, &["--help"]].concat());
        let lines = short.lines().count();
        assert!(lines <= 55, "{command:?}: {lines} lines:\n{short}");
        assert_contains(&short, "--rules");
        assert!(!short.contains("--grpc-keepalive-time"), "{short}");
        assert_contains(&short, "--help");
        assert_contains(&long, "--grpc-keepalive-time");
        for heading in ["Rules:", "Listeners:", "TLS:", "Counters:", "Logs:"] {
            let stands = long.lines().any(|line| line == heading);
            assert!(stands, "{command:?} has no {heading}\n{long}");
        }
    }
}

#[test]
fn each_command_has_its_own_flags() {
    let serve = help(&["serve", "--help"]);
    let gateway = help(&["gateway", "--help"]);
    for flag in [
        "--upstream",
        "--listen ",
        "--service ",
        "--wait-max",
        "--access-log",
    ] {
        assert!(!serve.contains(flag), "serve has {flag}");
        assert!(gateway.contains(flag), "gateway lacks {flag}");
    }
    for flag in ["--rules", "--store ", "--http ", "--grpc "] {
        assert!(serve.contains(flag), "serve lacks {flag}");
        assert!(gateway.contains(flag), "gateway lacks {flag}");
    }
    // It shows what either would be told.
    let show = help(&["config", "show", "--help"]);
    assert!(show.contains("--upstream") && show.contains("--rules"));

    let folder = tempdir().expect("a folder can be made");
    let said = run(folder.path(), "serve --upstream http://127.0.0.1:1");
    assert_eq!(said.code, Some(2), "{}", said.err);
    assert_contains(&said.err, "ratekeeper gateway");
}

#[cfg(target_os = "linux")]
#[test]
fn a_help_that_cannot_be_written_is_a_failure() {
    let full = std::fs::File::create("/dev/full").expect("Linux has it");
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_ratekeeper"));
    let said = command.arg("--help").stdout(full).output();
    let said = said.expect("it can be run");
    assert_eq!(said.status.code(), Some(1));
    assert_contains(&String::from_utf8_lossy(&said.stderr), "No space left");
}
