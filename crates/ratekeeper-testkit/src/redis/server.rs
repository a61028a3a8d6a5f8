//! A single server.

use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

use super::Client;
use super::clock::Clock;
use crate::process::{Process, eventually, free_port, system};

/// A running server; killed on drop.
#[derive(Debug)]
pub struct Server {
    port: u16,
    tls_port: Option<u16>,
    folder: TempDir,
    process: Process,
    options: Vec<String>,
    clock: Option<Clock>,
}

impl Server {
    /// Starts a server without persistence.
    ///
    /// # Panics
    /// If it does not start.
    #[must_use]
    pub fn start() -> Self {
        Self::with(&[])
    }

    /// Starts a server with additional options: names with their `--`, and values.
    ///
    /// # Panics
    /// If it does not start.
    #[must_use]
    pub fn with(options: &[&str]) -> Self {
        let folder = tempfile::tempdir().expect("a folder can be made");
        Self::launched(folder, options, None)
    }

    /// Starts a server whose wall clock can be [set](Self::set_clock). It needs libfaketime.
    ///
    /// # Panics
    /// If it does not start.
    #[must_use]
    pub fn clocked(options: &[&str]) -> Self {
        let folder = tempfile::tempdir().expect("a folder can be made");
        let clock = Clock::new(folder.path());
        Self::launched(folder, options, Some(clock))
    }

    fn launched(folder: TempDir, options: &[&str], clock: Option<Clock>) -> Self {
        let port = free_port();
        let options: Vec<String> = options.iter().map(|option| (*option).to_owned()).collect();
        Self {
            port,
            tls_port: None,
            process: launch(port, &folder, &options, clock.as_ref()),
            folder,
            options,
            clock,
        }
    }

    /// Sets its wall clock this many seconds ahead of the machine's, or behind it.
    ///
    /// # Panics
    /// If it is not [clocked](Self::clocked).
    pub fn set_clock(&self, seconds: i64) {
        let clock = self.clock.as_ref();
        clock
            .expect("it was started with a clock of its own")
            .set(seconds);
    }

    /// Starts a server that also listens for TLS on [another port](Self::tls_port), and uses TLS to
    /// its peers, with `tls.crt`, `tls.key` and `ca.pem` in `files`.
    ///
    /// # Panics
    /// If it does not start.
    #[must_use]
    pub fn encrypted(files: &Path, options: &[&str]) -> Self {
        let tls_port = free_port();
        let encrypting = encrypting(files, tls_port);
        let encrypting = encrypting.iter().flatten().map(String::as_str);
        let mut all: Vec<&str> = encrypting.collect();
        all.extend(options);
        Self {
            tls_port: Some(tls_port),
            ..Self::with(&all)
        }
    }

    /// The port on which it listens for TLS.
    ///
    /// # Panics
    /// If it was started without TLS.
    #[must_use]
    pub fn tls_port(&self) -> u16 {
        self.tls_port.expect("it was started with certificates")
    }

    /// The loopback port on which it listens.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The folder in which it runs.
    #[must_use]
    pub fn folder(&self) -> PathBuf {
        self.folder.path().to_owned()
    }

    /// A connection to it.
    #[must_use]
    pub fn client(&self) -> Client {
        Client::connect(self.port)
    }

    /// The process, to pause or kill.
    pub fn process(&mut self) -> &mut Process {
        &mut self.process
    }

    /// Restarts it on the same port after its process was killed.
    ///
    /// # Panics
    /// If it does not start.
    pub fn restart(&mut self) {
        self.process.kill();
        self.process = launch(self.port, &self.folder, &self.options, self.clock.as_ref());
    }

    /// Waits until it, a replica, has all that its primary has.
    pub(super) fn catch_up(&self) {
        let mut client = self.client();
        eventually("a replica has caught up", || {
            let info = client.ask(&["INFO", "replication"]).text();
            info.contains("master_link_status:up")
        });
    }
}

fn launch(port: u16, folder: &TempDir, options: &[String], clock: Option<&Clock>) -> Process {
    let mut command = program();
    if let Some(clock) = clock {
        clock.preload(&mut command);
    }
    command
        .current_dir(folder.path())
        .args(["--port", &port.to_string(), "--bind", "127.0.0.1"])
        .args(["--save", "", "--appendonly", "no", "--daemonize", "no"])
        .args(options);
    let mut process = Process::spawn(&format!("redis on port {port}"), command);
    process.wait_for_port(port);
    process
}

/// The options for TLS of a server or a sentinel: names with their `--`, and values. Clients need
/// no certificate.
pub(super) fn encrypting(files: &Path, port: u16) -> [[String; 2]; 6] {
    let path = |name: &str| files.join(name).display().to_string();
    [
        ("--tls-port", port.to_string()),
        ("--tls-cert-file", path("tls.crt")),
        ("--tls-key-file", path("tls.key")),
        ("--tls-ca-cert-file", path("ca.pem")),
        ("--tls-auth-clients", "no".to_owned()),
        ("--tls-replication", "yes".to_owned()),
    ]
    .map(|(name, value)| [name.to_owned(), value])
}

/// The Redis of the system's packages, or the program that `RATEKEEPER_TEST_REDIS` names: `cargo
/// xtask matrix` repeats the tests with other servers.
pub(super) fn program() -> Command {
    match std::env::var_os("RATEKEEPER_TEST_REDIS") {
        Some(path) => Command::new(path),
        None => system("redis-server"),
    }
}

/// Returns true if [`Server`]s accept the options that were new in Redis 7.
///
/// # Panics
/// If the program cannot be run.
#[must_use]
pub fn is_7_or_later() -> bool {
    let version = program().arg("--version").output();
    let version = version.expect("a server says its version").stdout;
    !String::from_utf8_lossy(&version).contains("v=6.")
}
