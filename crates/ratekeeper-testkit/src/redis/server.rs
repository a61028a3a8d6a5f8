//! One server.

use std::path::PathBuf;
use std::process::Command;

use tempfile::TempDir;

use super::Client;
use crate::process::{Process, free_port, system};

/// A running server; killed when this is dropped.
#[derive(Debug)]
pub struct Server {
    port: u16,
    folder: TempDir,
    process: Process,
    options: Vec<String>,
}

impl Server {
    /// A server that keeps nothing on disk.
    ///
    /// # Panics
    /// If it does not start.
    #[must_use]
    pub fn start() -> Self {
        Self::with(&[])
    }

    /// A server with further options: names with their `--`, and values.
    ///
    /// # Panics
    /// If it does not start.
    #[must_use]
    pub fn with(options: &[&str]) -> Self {
        let folder = tempfile::tempdir().expect("a folder can be made");
        let port = free_port();
        let options: Vec<String> = options.iter().map(|option| (*option).to_owned()).collect();
        let process = launch(port, &folder, &options);
        let mut server = Self {
            port,
            folder,
            process,
            options,
        };
        server.wait();
        server
    }

    /// Where it listens on the loopback interface.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The folder it runs in.
    #[must_use]
    pub fn folder(&self) -> PathBuf {
        self.folder.path().to_owned()
    }

    /// A connection to it.
    #[must_use]
    pub fn client(&self) -> Client {
        Client::connect(self.port)
    }

    /// The process, to be paused and killed.
    pub fn process(&mut self) -> &mut Process {
        &mut self.process
    }

    /// Starts it again on the same port after its process was killed.
    ///
    /// # Panics
    /// If it does not start.
    pub fn restart(&mut self) {
        self.process.kill();
        self.process = launch(self.port, &self.folder, &self.options);
        self.wait();
    }

    fn wait(&mut self) {
        let port = self.port;
        self.process.wait_for_port(port);
    }
}

fn launch(port: u16, folder: &TempDir, options: &[String]) -> Process {
    let mut command = program();
    command
        .current_dir(folder.path())
        .args(["--port", &port.to_string(), "--bind", "127.0.0.1"])
        .args(["--save", "", "--appendonly", "no", "--daemonize", "no"])
        .args(options);
    Process::spawn(&format!("redis on port {port}"), command)
}

/// Redis of the system's packages, or what `RATEKEEPER_TEST_REDIS` names: `cargo xtask matrix` repeats the tests with
/// other servers.
pub(super) fn program() -> Command {
    match std::env::var_os("RATEKEEPER_TEST_REDIS") {
        Some(path) => Command::new(path),
        None => system("redis-server"),
    }
}
