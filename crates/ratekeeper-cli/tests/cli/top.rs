//! `ratekeeper top`, as people and scripts run it.

use crate::support::{FREE_PORTS, Service, ratekeeper, run, write};
use ratekeeper_testkit::process::{free_port, system};
use serde_json::Value;
use std::io::{Read, Write};
use std::path::Path;
use std::process::Stdio;
use tempfile::tempdir;

const RULES: &str = "domain: d\ndescriptors:\n- { key: user, rate_limit: { window: 24h, limit: 1, algorithm: fixed_window } }\n";

fn serve(folder: &Path, more: &[&str]) -> Service {
    write(folder, "rules.yaml", RULES);
    let args = [&["serve", "--rules", "rules.yaml"][..], &FREE_PORTS, more].concat();
    Service::start(ratekeeper(folder, &args), folder)
}

#[test]
fn once_prints_a_state_as_text() {
    let folder = tempdir().expect("a folder can be made");
    let service = serve(folder.path(), &[]);
    for _ in 0..4 {
        service.check(&[("user", "ann")]);
    }
    let admin = format!("http://{}", service.admin);
    let said = run(folder.path(), &["top", "--once", "--admin", &admin]);
    assert_eq!(said.code, Some(0), "{}", said.err);
    for part in [
        "serving",
        "allowed/s",
        "Denied most",
        "RULE",
        "d.user",
        "1 per 1d",
        "counters",
    ] {
        assert!(said.out.contains(part), "no {part:?} in\n{}", said.out);
    }
    assert!(!said.out.contains('\u{1b}'), "{}", said.out);
    // Into a pipe it is one text, asked for or not.
    let piped = run(folder.path(), &["top", "--admin", &admin]);
    assert_eq!(piped.code, Some(0), "{}", piped.err);
    assert!(piped.out.contains("d.user"), "{}", piped.out);
    let json = run(folder.path(), &["top", "--json", "--admin", &admin]);
    let state: Value = serde_json::from_str(&json.out).expect("it is JSON");
    assert_eq!(state["node"]["state"], "serving", "{state}");
    assert!(service.stop().success());
}

#[test]
fn a_token_is_asked_for_and_taken_from_a_file() {
    let folder = tempdir().expect("a folder can be made");
    let create = [
        "token",
        "create",
        "ann",
        "--role",
        "viewer",
        "--data-dir",
        "data",
    ];
    let token = run(folder.path(), &create);
    assert_eq!(token.code, Some(0), "{}", token.err);
    let is_token = |word: &&str| word.starts_with("rk_admin_");
    let token = token
        .out
        .split_whitespace()
        .find(is_token)
        .expect("it is printed");
    write(folder.path(), "token.txt", token);
    let service = serve(folder.path(), &["--data-dir", "data"]);
    let admin = format!("http://{}", service.admin);
    let without = run(folder.path(), &["top", "--once", "--admin", &admin]);
    assert_eq!(without.code, Some(1), "{}", without.out);
    assert!(without.err.contains("401"), "{}", without.err);
    let with = [
        "top",
        "--once",
        "--admin",
        &admin,
        "--token-file",
        "token.txt",
    ];
    let with = run(folder.path(), &with);
    assert_eq!(with.code, Some(0), "{}", with.err);
    assert!(service.stop().success());
}

#[test]
fn nobody_there_is_told_in_one_line() {
    let folder = tempdir().expect("a folder can be made");
    let admin = format!("http://127.0.0.1:{}", free_port());
    let said = run(folder.path(), &["top", "--once", "--admin", &admin]);
    assert_eq!(said.code, Some(1));
    assert!(said.err.contains("nobody answers"), "{}", said.err);
}

/// In a real terminal it takes another screen, and gives the first one back.
#[test]
fn a_terminal_is_restored() {
    let folder = tempdir().expect("a folder can be made");
    let service = serve(folder.path(), &[]);
    for key in ["q", "\u{3}"] {
        let top = format!(
            "stty cols 120 rows 40; exec {} top --admin http://{}",
            env!("CARGO_BIN_EXE_ratekeeper"),
            service.admin
        );
        let mut script = system("script");
        script.args(["--quiet", "--return", "--command", &top, "/dev/null"]);
        script.env("TERM", "xterm-256color");
        script.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut script = script.spawn().expect("script starts");
        let mut input = script.stdin.take().expect("its input is piped");
        let mut output = script.stdout.take().expect("its output is piped");
        let mut said = Vec::new();
        let mut piece = [0; 4096];
        // Rules are drawn once the first state has come.
        while !String::from_utf8_lossy(&said).contains("d.user") {
            let read = output.read(&mut piece).expect("its output can be read");
            assert!(read > 0, "it ended: {}", String::from_utf8_lossy(&said));
            said.extend_from_slice(&piece[..read]);
        }
        input.write_all(key.as_bytes()).expect("it reads keys");
        output
            .read_to_end(&mut said)
            .expect("its output can be read");
        let ended = script.wait().expect("it ends");
        let said = String::from_utf8_lossy(&said);
        assert!(ended.success(), "{said}");
        let (enter, leave) = ("\u{1b}[?1049h", "\u{1b}[?1049l");
        assert!(said.contains(enter) && said.contains(leave), "{said}");
        assert!(said.rfind(leave) > said.rfind("d.user"), "{said}");
    }
    assert!(service.stop().success());
}
