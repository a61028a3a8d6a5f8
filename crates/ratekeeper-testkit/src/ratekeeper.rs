//! The shipped binary: started with files of its own on free ports, asked, and ended with the test.
//!
//! ```no_run
//! use ratekeeper_testkit::ratekeeper::Setup;
//!
//! let rules = "domain: d\ndescriptors: [ { key: user, rate_limit: { window: 1h, limit: 3 } } ]\n";
//! let node = Setup::serve("target/release/ratekeeper").rules(rules).start();
//! assert!(node.told("/readyz").is_some_and(|answer| answer.status == 200));
//! assert_eq!(node.metric("ratelimit_quota_tenants "), 0);
//! ```

mod args;
mod said;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::mpsc;
use std::thread;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use tempfile::TempDir;

pub use args::Args;
pub use said::{Said, command, run, write};

use crate::http1::{Answer, ask};
use crate::process::{DEADLINE, Process, eventually, free_port};

/// The way in which the binary is started.
#[derive(Clone, Debug)]
#[must_use]
pub struct Setup {
    program: PathBuf,
    /// The words that start it, such as `taskset -c 0`.
    prefix: Vec<String>,
    args: Vec<String>,
    variables: Vec<(String, String)>,
    /// Names and texts.
    files: Vec<(String, String)>,
    folder: Option<PathBuf>,
    /// The flags of its listeners.
    listeners: &'static [&'static str],
    host: &'static str,
    /// The port for gRPC; a free one without it.
    grpc: Option<u16>,
}

/// The flags of the listeners of a service, and of a gateway: for clients, for operators, and for gRPC.
const SERVICE: &[&str] = &["--http", "--admin", "--grpc"];
const GATEWAY: &[&str] = &["--listen", "--admin"];

impl Setup {
    /// `ratekeeper serve` on loopback.
    pub fn serve(program: impl AsRef<Path>) -> Self {
        Self::of(program, "serve")
    }

    /// Another command that serves.
    pub fn of(program: impl AsRef<Path>, words: &(impl Args + ?Sized)) -> Self {
        let program = std::path::absolute(program).expect("a program has a path");
        let setup = Self {
            program,
            prefix: Vec::new(),
            args: Vec::new(),
            variables: Vec::new(),
            files: Vec::new(),
            folder: None,
            listeners: SERVICE,
            host: "127.0.0.1",
            grpc: None,
        };
        setup.args(words).args("--drain-delay 0s")
    }

    /// `ratekeeper gateway`, whose settings or arguments name its upstreams.
    pub fn front(program: impl AsRef<Path>) -> Self {
        Self {
            listeners: GATEWAY,
            ..Self::of(program, "gateway")
        }
    }

    /// `ratekeeper gateway` in front of the upstream at a URL.
    pub fn gateway(program: impl AsRef<Path>, upstream: &str) -> Self {
        Self::front(program).args(&["--upstream", upstream])
    }

    /// With these rules.
    pub fn rules(self, text: &str) -> Self {
        self.file("rules.yaml", text).args("--rules rules.yaml")
    }

    /// With these settings, in `ratekeeper.yaml`.
    pub fn settings(self, text: &str) -> Self {
        self.file("ratekeeper.yaml", text)
    }

    /// With another file beside them, or in folders below.
    pub fn file(mut self, name: &str, text: &str) -> Self {
        self.files.push((name.to_owned(), text.to_owned()));
        self
    }

    /// With further arguments.
    pub fn args(mut self, args: &(impl Args + ?Sized)) -> Self {
        self.args
            .extend(args.words().into_iter().map(str::to_owned));
        self
    }

    /// With a variable beside PATH, the only one of this process's environment that it gets.
    pub fn variable(mut self, name: &str, value: &str) -> Self {
        self.variables.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Started by another program, such as `taskset -c 0`, whose process it becomes.
    pub fn behind<S: AsRef<str>>(mut self, prefix: &[S]) -> Self {
        self.prefix = prefix.iter().map(|word| word.as_ref().to_owned()).collect();
        self
    }

    /// In that folder, which outlives it, instead of one of its own.
    pub fn in_folder(mut self, folder: &Path) -> Self {
        self.folder = Some(folder.to_owned());
        self
    }

    /// With gRPC and HTTP for other hosts too.
    pub fn for_all_hosts(mut self) -> Self {
        self.host = "0.0.0.0";
        self
    }

    /// With gRPC at that port.
    pub fn grpc_at(mut self, port: u16) -> Self {
        self.grpc = Some(port);
        self
    }

    /// Starts it with these rules and settings.
    ///
    /// # Panics
    /// As [`Setup::start`].
    #[must_use]
    pub fn start_with(self, rules: &str, settings: &str) -> Ratekeeper {
        self.rules(rules).settings(settings).start()
    }

    /// Starts it, and waits until it listens.
    ///
    /// # Panics
    /// If it does not.
    #[must_use]
    pub fn start(self) -> Ratekeeper {
        let own = tempfile::tempdir().expect("a folder can be made");
        let folder = self.folder.as_deref().unwrap_or(own.path());
        self.write_files(folder);
        let [port, admin] = [free_port(), free_port()];
        let grpc = self.grpc.unwrap_or_else(free_port);
        let process = self.launch(folder, [port, admin, grpc]);
        Ratekeeper {
            setup: self,
            port,
            admin,
            grpc,
            process,
            own,
        }
    }

    /// Starts it, which has to be refused, and returns what it said; one that serves is killed after [`DEADLINE`].
    ///
    /// # Panics
    /// As [`run`].
    #[must_use]
    pub fn run(self) -> Said {
        let own = tempfile::tempdir().expect("a folder can be made");
        let folder = self.folder.as_deref().unwrap_or(own.path());
        self.write_files(folder);
        let mut command = self.command(folder, [0; 3]);
        let command = command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let child = command.spawn().expect("the program starts");
        let id = Pid::from_child(&child);
        let (sender, output) = mpsc::channel();
        // Ends with the process.
        thread::spawn(move || sender.send(child.wait_with_output()));
        let in_time = output.recv_timeout(DEADLINE);
        let output = in_time.or_else(|_| {
            let _ = kill_process(id, Signal::KILL);
            output.recv()
        });
        let output = output.expect("the thread waits for it");
        output.expect("its output can be read").into()
    }

    fn write_files(&self, folder: &Path) {
        fs::create_dir_all(folder).expect("a folder can be made");
        for (name, text) in &self.files {
            write(folder, name, text);
        }
    }

    fn command(&self, folder: &Path, ports: [u16; 3]) -> Command {
        let program = self.program.to_string_lossy();
        let mut words = self.prefix.iter().map(String::as_str).chain([&*program]);
        let mut command = command(words.next().unwrap_or_default(), folder, "");
        command.args(words).args(&self.args);
        command.envs(self.variables.iter().map(|(name, value)| (name, value)));
        for (flag, port) in self.listeners.iter().zip(ports) {
            let host = match *flag {
                "--admin" => "127.0.0.1",
                _ => self.host,
            };
            command.args([flag, &*format!("{host}:{port}")]);
        }
        command
    }

    fn launch(&self, folder: &Path, ports: [u16; 3]) -> Process {
        let name = format!("ratekeeper on port {}", ports[0]);
        let mut process = Process::spawn(&name, self.command(folder, ports));
        for (_, port) in self.listeners.iter().zip(ports) {
            process.wait_for_port(port);
        }
        process
    }
}

/// A running service or gateway; killed when it is dropped. A panic in it fails the test, since callers may have seen no more
/// of it than a closed connection.
#[derive(Debug)]
pub struct Ratekeeper {
    setup: Setup,
    /// The port for clients: that of HTTP, or the gateway's.
    pub port: u16,
    /// The port for operators.
    pub admin: u16,
    /// The port for gRPC; nothing listens there if it is a gateway.
    pub grpc: u16,
    /// Its process.
    pub process: Process,
    own: TempDir,
}

impl Ratekeeper {
    /// The folder that it runs in.
    #[must_use]
    pub fn folder(&self) -> &Path {
        self.setup.folder.as_deref().unwrap_or(self.own.path())
    }

    /// Ends it as operators do, and starts it again on the same ports.
    pub fn restart(&mut self) {
        self.process.terminate();
        self.assert_calm();
        self.process = self
            .setup
            .launch(self.folder(), [self.port, self.admin, self.grpc]);
    }

    fn assert_calm(&self) {
        assert!(!self.process.has_panicked(), "{}", self.log());
    }

    /// Ends it as operators do.
    pub fn stop(mut self) -> ExitStatus {
        self.process.terminate()
    }

    /// Names the binary of the next start.
    pub fn set_program(&mut self, program: &Path) {
        program.clone_into(&mut self.setup.program);
    }

    /// The answer of the admin listener at `path`; [`None`] without an answer of HTTP.
    #[must_use]
    pub fn told(&self, path: &str) -> Option<Answer> {
        ask(self.admin, "GET", path, "", "")
    }

    /// Returns true if a client that behaves is served at `path`.
    #[must_use]
    pub fn serves(&self, path: &str) -> bool {
        let answer = ask(self.port, "GET", path, "", "");
        answer.is_some_and(|answer| answer.status == 200)
    }

    /// The value of a metric's series, written as in the text up to the space before it.
    ///
    /// # Panics
    /// If it is not there.
    #[must_use]
    pub fn metric(&self, series: &str) -> u64 {
        let metrics = self.metrics();
        let value = value_of(&metrics, series);
        value.unwrap_or_else(|| panic!("{series} is not among {metrics}"))
    }

    /// The same, and 0 while it is not there.
    #[must_use]
    pub fn metric_or_zero(&self, series: &str) -> u64 {
        value_of(&self.metrics(), series).unwrap_or(0)
    }

    /// The text of all metrics; empty while it does not answer.
    #[must_use]
    pub fn metrics(&self) -> String {
        self.told("/metrics").map_or_else(String::new, |it| it.body)
    }

    /// The state that it tells operators.
    ///
    /// # Panics
    /// If it does not answer in JSON.
    #[must_use]
    pub fn readyz(&self) -> Value {
        let answer = self.told("/readyz").expect("it answers in HTTP");
        serde_json::from_str(&answer.body).expect("it is JSON")
    }

    /// The answer to a check of `entries` in domain `d`.
    ///
    /// # Panics
    /// If it is anything but 200 and JSON.
    pub fn check(&self, entries: &[(&str, &str)]) -> Value {
        let entry = |(key, value): &(&str, &str)| json!({ "key": key, "value": value });
        let entries: Vec<_> = entries.iter().map(entry).collect();
        let body = json!({ "domain": "d", "descriptors": [{ "entries": entries }] }).to_string();
        let kind = "Content-Type: application/json\r\n";
        let answer = ask(self.port, "POST", "/v1/check", kind, body).expect("it answers in HTTP");
        assert_eq!(answer.status, 200, "{}", answer.body);
        serde_json::from_str(&answer.body).expect("the answer is JSON")
    }

    /// The end of its output so far: what it says at the start, and its log.
    #[must_use]
    pub fn log(&self) -> String {
        self.process.output()
    }

    /// Waits until it has logged a line with `text`, and returns the log.
    ///
    /// # Panics
    /// If it does not.
    pub fn wait_for_log(&self, text: &str) -> String {
        eventually(&format!("it logs {text:?}"), || {
            self.process.has_printed(text)
        });
        self.log()
    }

    /// The sum over all series of a metric whose lines have these words: its name, and labels.
    #[must_use]
    pub fn metric_sum(&self, words: &[&str]) -> f64 {
        let told = self.metrics();
        let lines = told.lines().filter(|line| !line.starts_with('#'));
        let lines = lines.filter(|line| words.iter().all(|word| line.contains(word)));
        let values = lines.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok());
        values.sum()
    }
}

fn value_of(metrics: &str, series: &str) -> Option<u64> {
    let value = |line: &str| line.strip_prefix(series)?.trim().parse().ok();
    metrics.lines().find_map(value)
}

impl Drop for Ratekeeper {
    fn drop(&mut self) {
        if !thread::panicking() {
            self.assert_calm();
        }
    }
}
