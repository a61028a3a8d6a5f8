//! Running the binary and talking to it.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, ExitStatus, Output, Stdio};

use ratekeeper_testkit::http1;
use ratekeeper_testkit::process::eventually;
pub(crate) use ratekeeper_testkit::ratekeeper::Said;
use ratekeeper_testkit::ratekeeper::{self, command};
use ratekeeper_testkit::redis::{Client, Reply, Server};

/// The binary in `folder`, with nothing but PATH from this process's environment.
pub(crate) fn ratekeeper(folder: &Path, args: &[&str]) -> Command {
    command(env!("CARGO_BIN_EXE_ratekeeper"), folder, args)
}

/// Runs the binary to its end.
pub(crate) fn run(folder: &Path, args: &[&str]) -> Said {
    ratekeeper::run(&mut ratekeeper(folder, args))
}

pub(crate) fn said(output: Output) -> Said {
    output.into()
}

/// The folder of the repository.
pub(crate) fn repository() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.ancestors()
        .nth(2)
        .expect("the crate lies two folders deep")
        .to_path_buf()
}

/// Writes a file and returns its path.
pub(crate) fn write(folder: &Path, name: &str, text: &str) -> PathBuf {
    let path = folder.join(name);
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder).expect("folders can be made");
    }
    std::fs::write(&path, text).expect("files can be written");
    path
}

/// Flags that let several tests run at once.
pub(crate) const FREE_PORTS: [&str; 8] = [
    "--grpc",
    "127.0.0.1:0",
    "--http",
    "127.0.0.1:0",
    "--admin",
    "127.0.0.1:0",
    "--drain-delay",
    "0s",
];

/// Starts a node with these rules, in a folder of its own in `folder`.
///
/// Its deadline is long: a slow machine is no failure of Redis.
pub(crate) fn node(folder: &Path, name: &str, rules: &str, store: &str) -> Service {
    let folder = folder.join(name);
    write(&folder, "rules.yaml", rules);
    let args = ["serve", "--rules", "rules.yaml", "--store", store];
    let patient = ["--store-deadline", "1s"];
    let args: Vec<&str> = args
        .iter()
        .chain(&patient)
        .chain(&FREE_PORTS)
        .copied()
        .collect();
    Service::start(ratekeeper(&folder, &args), &folder)
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

/// A running service; it is killed with the test.
pub(crate) struct Service {
    child: Child,
    out: BufReader<ChildStdout>,
    log: PathBuf,
    pub(crate) grpc: SocketAddr,
    pub(crate) http: SocketAddr,
    pub(crate) admin: SocketAddr,
    /// The text it prints once it listens.
    pub(crate) banner: String,
    /// The commands it prints to try.
    pub(crate) commands: Vec<String>,
}

impl Service {
    /// Starts it and waits until it says where it listens. Its log goes to a file in `folder`.
    pub(crate) fn start(mut command: Command, folder: &Path) -> Service {
        let log = folder.join("log.txt");
        let file = File::create(&log).expect("the log can be made");
        let mut child = command
            .stdout(Stdio::piped())
            .stderr(file)
            .spawn()
            .expect("the binary starts");
        let mut out = BufReader::new(child.stdout.take().expect("its output is piped"));
        let mut text = String::new();
        // Three commands follow the word Try.
        let mut left = usize::MAX;
        while left > 0 {
            let mut line = String::new();
            let read = out.read_line(&mut line).expect("it prints UTF-8");
            assert!(
                read > 0,
                "it ended before it listened: {text}{}",
                log_text(&log)
            );
            left = if line.starts_with("Try:") {
                3
            } else {
                left - 1
            };
            text.push_str(&line);
        }
        let address = |name: &str| {
            let line = text
                .lines()
                .find(|line| line.trim_start().starts_with(name));
            let line = line.unwrap_or_else(|| panic!("no line about {name} in:\n{text}"));
            let place = line
                .split_whitespace()
                .nth(3)
                .expect("the line names an address");
            if place.starts_with("unix:") {
                // It has no port; this one is not connected to.
                return SocketAddr::from(([127, 0, 0, 1], 0));
            }
            place
                .trim_start_matches("http://")
                .trim_start_matches("https://")
                .parse()
                .expect("it is an address")
        };
        let commands = text
            .lines()
            .rev()
            .take(3)
            .map(|line| line.trim().to_owned());
        let mut commands: Vec<String> = commands.collect();
        commands.reverse();
        let (grpc, http, admin) = (address("gRPC"), address("HTTP"), address("admin"));
        Service {
            child,
            out,
            log,
            grpc,
            http,
            admin,
            banner: text,
            commands,
        }
    }

    /// Posts a check of `entries` in domain `d`, and returns the JSON of the answer.
    pub(crate) fn check(&self, entries: &[(&str, &str)]) -> serde_json::Value {
        let entry = |(key, value): &(&str, &str)| serde_json::json!({ "key": key, "value": value });
        let entries: Vec<_> = entries.iter().map(entry).collect();
        let body = serde_json::json!({ "domain": "d", "descriptors": [{ "entries": entries }] });
        let (status, body) = http(self.http, "POST", "/v1/check", &body.to_string());
        assert_eq!(status, 200, "{body}");
        serde_json::from_str(&body).expect("the answer is JSON")
    }

    /// Asks it to stop and waits until it has.
    pub(crate) fn stop(self) -> ExitStatus {
        self.stop_by("TERM")
    }

    /// Asks it to stop by that signal, `TERM` or `INT`, and waits until it has.
    pub(crate) fn stop_by(self, signal: &str) -> ExitStatus {
        self.signal(signal);
        self.end()
    }

    /// Waits until it has ended.
    pub(crate) fn end(mut self) -> ExitStatus {
        self.child.wait().expect("its end can be waited for")
    }

    /// Sends it that signal, such as `STOP`.
    pub(crate) fn signal(&self, signal: &str) {
        let kill = Command::new("kill")
            .args([format!("-{signal}"), self.child.id().to_string()])
            .status();
        assert!(kill.expect("kill starts").success());
    }

    /// The lines it has logged so far.
    pub(crate) fn log(&self) -> String {
        log_text(&self.log)
    }

    /// Waits until it has logged a line with `text`, and returns the log.
    pub(crate) fn wait_for_log(&self, text: &str) -> String {
        let is_logged = || {
            let log = self.log();
            let after = log.split_once(text).map(|(_, after)| after);
            after.is_some_and(|after| after.contains('\n'))
        };
        eventually(&format!("it logs {text:?}"), is_logged);
        self.log()
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        // Either may have happened already.
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = self.out.get_mut();
    }
}

fn log_text(log: &Path) -> String {
    std::fs::read_to_string(log).unwrap_or_default()
}

/// Sends one request; returns the status and the body of the answer.
pub(crate) fn http(address: SocketAddr, method: &str, path: &str, body: &str) -> (u16, String) {
    let kind = "Content-Type: application/json\r\n";
    let answer = http1::ask(address.port(), method, path, kind, body);
    let answer = answer.expect("it answers in HTTP");
    (answer.status, answer.body)
}
