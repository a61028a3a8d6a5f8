//! Running the binary and talking to it.

use std::path::Path;
use std::process::{Command, Output};

use ratekeeper_testkit::http1;
use ratekeeper_testkit::process::eventually;
use ratekeeper_testkit::ratekeeper::{self, Args, Setup, command};
pub(crate) use ratekeeper_testkit::ratekeeper::{Ratekeeper, Said, write};
use ratekeeper_testkit::redis::{Client, Reply, Server};
pub(crate) use ratekeeper_testkit::repository;

/// The binary.
pub(crate) const PROGRAM: &str = env!("CARGO_BIN_EXE_ratekeeper");

/// The binary in `folder`, with nothing but PATH from this process's environment.
pub(crate) fn ratekeeper(folder: &Path, args: &(impl Args + ?Sized)) -> Command {
    command(PROGRAM, folder, args)
}

/// Runs the binary to its end.
pub(crate) fn run(folder: &Path, args: &(impl Args + ?Sized)) -> Said {
    ratekeeper::run(&mut ratekeeper(folder, args))
}

pub(crate) fn said(output: Output) -> Said {
    output.into()
}

/// A service in `folder`.
pub(crate) fn serve(folder: &Path) -> Setup {
    Setup::serve(PROGRAM).in_folder(folder)
}

/// Starts a node with these rules, in a folder of its own in `folder`.
///
/// Its deadline is long: a slow machine is no failure of Redis.
pub(crate) fn node(folder: &Path, name: &str, rules: &str, store: &str) -> Ratekeeper {
    let setup = serve(&folder.join(name)).rules(rules);
    setup
        .args(&format!("--store {store} --store-deadline 1s"))
        .start()
}

/// The command that starts an example of ours by its script, in `folder`.
pub(crate) fn example(folder: &Path, script: &str) -> Command {
    let programs = Path::new(PROGRAM).parent().expect("it lies in a folder");
    let path = std::env::var("PATH").unwrap_or_default();
    let mut command = Command::new("sh");
    command
        .current_dir(folder)
        .arg(repository().join("examples").join(script))
        .env_clear()
        .env("PATH", format!("{}:{path}", programs.display()));
    command
}

/// The URL of a Redis server of a test.
pub(crate) fn url(server: &Server) -> String {
    format!("redis://127.0.0.1:{}/", server.port())
}

/// The number of keys of that pattern, but for those in which nodes tell each other of themselves.
pub(crate) fn keys(client: &mut Client, pattern: &str) -> usize {
    let Reply::Array(keys) = client.ask(&["KEYS", pattern]) else {
        panic!("KEYS is answered by a list");
    };
    let is_board = |key: &Reply| {
        ["rk:{top}", "rk:{quotas}"]
            .iter()
            .any(|tag| key.text().starts_with(tag))
    };
    let is_other = |key: &&Reply| !is_board(key);
    keys.iter().filter(is_other).count()
}

/// The text that it prints beside its log, whose lines begin with a time: where it listens, and three commands to try.
pub(crate) fn banner(service: &Ratekeeper) -> String {
    let printed = || {
        let log = service.log();
        let lines = log.lines().filter(|line| !line.starts_with("20"));
        lines.map(|line| format!("{line}\n")).collect::<String>()
    };
    let commands = |text: &str| {
        text.split_once("Try:")
            .map_or(0, |(_, rest)| rest.lines().count())
    };
    eventually("it prints commands to try", || commands(&printed()) == 4);
    printed()
}

/// The commands that it prints to try, wherever its log goes on.
pub(crate) fn commands(banner: &str) -> [&str; 3] {
    let lines = banner.lines().filter(|line| !line.starts_with("20"));
    let lines: Vec<_> = lines
        .map(str::trim)
        .filter(|line| !line.is_empty())
        .collect();
    *lines.last_chunk().expect("it prints three commands")
}

/// Sends one request; returns the status and the body of the answer.
pub(crate) fn http(port: u16, method: &str, path: &str, body: &str) -> (u16, String) {
    let kind = "Content-Type: application/json\r\n";
    let answer = http1::ask(port, method, path, kind, body);
    let answer = answer.expect("it answers in HTTP");
    (answer.status, answer.body)
}

/// The faults that a service tells its clients, which is ready all the same.
pub(crate) fn faults(service: &Ratekeeper) -> String {
    let (status, body) = http(service.port, "GET", "/readyz", "");
    assert_eq!(status, 200, "{body}");
    let body: serde_json::Value = serde_json::from_str(&body).expect("it is JSON");
    body["faults"].to_string()
}
