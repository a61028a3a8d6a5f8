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

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use tempfile::TempDir;

use crate::http1::{Answer, ask};
use crate::process::{Process, free_port};

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
}

/// The flags of the listeners of a service, and of a gateway: for clients, for operators, and for gRPC.
const SERVICE: &[&str] = &["--http", "--admin", "--grpc"];
const GATEWAY: &[&str] = &["--listen", "--admin"];

impl Setup {
    /// `ratekeeper serve` on loopback.
    pub fn serve(program: impl AsRef<Path>) -> Self {
        Self::of(program, &["serve"])
    }

    /// Another command that serves.
    pub fn of(program: impl AsRef<Path>, words: &[&str]) -> Self {
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
        };
        setup.args(words).args(&["--drain-delay", "0s"])
    }

    /// `ratekeeper gateway`, whose settings or arguments name its upstreams.
    pub fn front(program: impl AsRef<Path>) -> Self {
        Self {
            listeners: GATEWAY,
            ..Self::of(program, &["gateway"])
        }
    }

    /// `ratekeeper gateway` in front of the upstream at a URL.
    pub fn gateway(program: impl AsRef<Path>, upstream: &str) -> Self {
        Self::front(program).args(&["--upstream", upstream])
    }

    /// With these rules.
    pub fn rules(self, text: &str) -> Self {
        self.file("rules.yaml", text)
            .args(&["--rules", "rules.yaml"])
    }

    /// With these settings, in `ratekeeper.yaml`.
    pub fn settings(self, text: &str) -> Self {
        self.file("ratekeeper.yaml", text)
    }

    /// With another file beside them.
    pub fn file(mut self, name: &str, text: &str) -> Self {
        self.files.push((name.to_owned(), text.to_owned()));
        self
    }

    /// With further arguments.
    pub fn args(mut self, args: &[&str]) -> Self {
        self.args.extend(args.iter().map(|arg| (*arg).to_owned()));
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

    /// Starts it, and waits until it listens.
    ///
    /// # Panics
    /// If it does not.
    #[must_use]
    pub fn start(self) -> Ratekeeper {
        let own = tempfile::tempdir().expect("a folder can be made");
        let folder = self.folder.as_deref().unwrap_or(own.path());
        for (name, text) in &self.files {
            fs::write(folder.join(name), text).expect("a file can be written");
        }
        let [port, admin, grpc] = [free_port(), free_port(), free_port()];
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

    fn launch(&self, folder: &Path, ports: [u16; 3]) -> Process {
        let program = self.program.to_string_lossy();
        let mut words = self.prefix.iter().map(String::as_str).chain([&*program]);
        let mut command = command(words.next().unwrap_or_default(), folder, &[]);
        command.args(words).args(&self.args);
        command.envs(self.variables.iter().map(|(name, value)| (name, value)));
        let listeners = || self.listeners.iter().zip(ports);
        for (flag, port) in listeners() {
            let host = match *flag {
                "--admin" => "127.0.0.1",
                _ => self.host,
            };
            command.args([flag, &*format!("{host}:{port}")]);
        }
        let mut process = Process::spawn(&format!("ratekeeper on port {}", ports[0]), command);
        for (_, port) in listeners() {
            process.wait_for_port(port);
        }
        process
    }
}

/// A running service or gateway; killed when it is dropped.
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
        self.process = self
            .setup
            .launch(self.folder(), [self.port, self.admin, self.grpc]);
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

    /// The value of a metric's series, written as in the text up to the space before it; 0 while it is not there.
    #[must_use]
    pub fn metric(&self, series: &str) -> u64 {
        let value = |line: &str| line.strip_prefix(series)?.trim().parse().ok();
        self.metrics().lines().find_map(value).unwrap_or(0)
    }

    fn metrics(&self) -> String {
        self.told("/metrics").map_or_else(String::new, |it| it.body)
    }

    /// The sum over all series of a metric.
    #[must_use]
    pub fn metric_sum(&self, name: &str) -> f64 {
        let told = self.metrics();
        let lines = told.lines().filter(|line| line.starts_with(name));
        let values = lines.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok());
        values.sum()
    }
}

/// A program in `folder`, with nothing but PATH from this process's environment.
#[must_use]
pub fn command(program: impl AsRef<Path>, folder: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(program.as_ref());
    command
        .current_dir(folder)
        .args(args)
        .env_clear()
        .stdin(Stdio::null());
    if let Some(path) = std::env::var_os("PATH") {
        command.env("PATH", path);
    }
    command
}

/// The exit code and the output of a run to its end.
#[derive(Clone, Debug)]
pub struct Said {
    /// [`None`] if a signal ended it.
    pub code: Option<i32>,
    /// Its output.
    pub out: String,
    /// Its complaints.
    pub err: String,
}

impl From<Output> for Said {
    /// # Panics
    /// If the output is not UTF-8.
    fn from(output: Output) -> Self {
        Self {
            code: output.status.code(),
            out: String::from_utf8(output.stdout).expect("it prints UTF-8"),
            err: String::from_utf8(output.stderr).expect("it complains in UTF-8"),
        }
    }
}

/// Runs a command to its end.
///
/// # Panics
/// If it does not start, or prints anything but UTF-8.
#[must_use]
pub fn run(command: &mut Command) -> Said {
    command.output().expect("the program starts").into()
}
