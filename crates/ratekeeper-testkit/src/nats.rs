//! Real NATS servers with JetStream for tests, each in its own folder and on a free port.

use std::process::Command;

use tempfile::TempDir;

use crate::process::{Process, free_port, system};

/// A running server; ended on drop.
#[derive(Debug)]
pub struct Server {
    port: u16,
    folder: TempDir,
    process: Process,
}

impl Server {
    /// Starts a server.
    ///
    /// # Panics
    /// If it does not start.
    #[must_use]
    pub fn start() -> Self {
        Self::with("")
    }

    /// Starts a server with lines of its configuration file.
    ///
    /// # Panics
    /// If it does not start.
    #[must_use]
    pub fn with(settings: &str) -> Self {
        let folder = tempfile::tempdir().expect("a folder can be made");
        std::fs::write(settings_file(&folder), settings).expect("a file can be written");
        let port = free_port();
        Self {
            port,
            process: launch(port, &folder),
            folder,
        }
    }

    /// Its address.
    #[must_use]
    pub fn url(&self) -> String {
        format!("nats://127.0.0.1:{}", self.port)
    }

    /// Its port.
    #[must_use]
    pub const fn port(&self) -> u16 {
        self.port
    }

    /// Kills it; what its streams have is kept.
    pub fn kill(&mut self) {
        self.process.kill();
    }

    /// Starts it again on the same port after it was killed.
    ///
    /// # Panics
    /// If it does not start.
    pub fn restart(&mut self) {
        self.process = launch(self.port, &self.folder);
    }
}

fn settings_file(folder: &TempDir) -> std::path::PathBuf {
    folder.path().join("nats.conf")
}

fn launch(port: u16, folder: &TempDir) -> Process {
    let mut command: Command = system("nats-server");
    command
        .args(["--addr", "127.0.0.1", "--port", &port.to_string()])
        .arg("--jetstream")
        .arg("--config")
        .arg(settings_file(folder))
        .arg("--store_dir")
        .arg(folder.path());
    let mut process = Process::spawn(&format!("NATS on port {port}"), command);
    process.wait_for_output("Server is ready");
    process
}
