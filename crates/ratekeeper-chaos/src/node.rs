//! A node: a process of the shipped binary.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};
use ratekeeper_testkit::process::{Process, free_port};

/// The key of the hashes of tenants, the same on all nodes of a database.
pub(crate) const TENANT_KEY: &str = "000102030405060708090a0b0c0d0e0f";

/// The settings that a node is started with.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    /// The binary.
    pub(crate) program: PathBuf,
    /// The text of its rules.
    pub(crate) rules: String,
    /// The URL of its Redis.
    pub(crate) store: String,
    /// The URL of the database of plans.
    pub(crate) quotas: Option<String>,
    /// The deadline of a decision.
    pub(crate) deadline: Duration,
}

/// A running node, killed when dropped.
pub(crate) struct Node {
    settings: Settings,
    process: Process,
    folder: tempfile::TempDir,
    ports: Ports,
}

/// The ports that a node listens on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ports {
    pub(crate) grpc: u16,
    pub(crate) http: u16,
    pub(crate) admin: u16,
}

impl Node {
    /// Starts a node, and waits until it listens.
    pub(crate) fn start(settings: &Settings) -> Result<Self> {
        let folder = tempfile::tempdir().context("no folder can be made")?;
        fs::write(folder.path().join("rules.yaml"), &settings.rules)?;
        let ports = Ports {
            grpc: free_port(),
            http: free_port(),
            admin: free_port(),
        };
        let process = launch(settings, folder.path(), ports);
        let mut node = Self {
            settings: settings.clone(),
            process,
            folder,
            ports,
        };
        node.wait();
        Ok(node)
    }

    /// Asks it to stop, and starts it again on the same ports.
    pub(crate) fn restart(&mut self) {
        self.process.terminate();
        self.process = launch(&self.settings, self.folder.path(), self.ports);
        self.wait();
    }

    /// Names the binary of the next start.
    pub(crate) fn set_program(&mut self, program: &Path) {
        self.settings.program = program.to_owned();
    }

    pub(crate) fn process(&mut self) -> &mut Process {
        &mut self.process
    }

    pub(crate) fn ports(&self) -> Ports {
        self.ports
    }

    /// The id of its process.
    pub(crate) fn id(&self) -> u32 {
        self.process.id()
    }

    /// The number of log lines since it was last started.
    pub(crate) fn lines(&self) -> u64 {
        self.process.lines()
    }

    /// The memory that it has resident now, in KiB.
    pub(crate) fn resident_kib(&self) -> usize {
        self.process.resident_kib()
    }

    /// The end of its log.
    pub(crate) fn log(&self) -> String {
        self.process.output()
    }

    fn wait(&mut self) {
        for port in [self.ports.grpc, self.ports.http, self.ports.admin] {
            self.process.wait_for_port(port);
        }
    }
}

fn launch(settings: &Settings, folder: &Path, ports: Ports) -> Process {
    let at = |port: u16| format!("127.0.0.1:{port}");
    let mut command = Command::new(&settings.program);
    command
        .current_dir(folder)
        .env_clear()
        // Its lines are no faults; those of faults are counted. Binaries that do not know it ignore it.
        .env("RATEKEEPER_DENIAL_LOG", "0")
        .args(["serve", "--rules", "rules.yaml", "--drain-delay", "0s"])
        .args(["--store", &settings.store, "--dynamic-metadata"])
        .args(["--grpc", &at(ports.grpc), "--http", &at(ports.http)])
        .args(["--admin", &at(ports.admin)])
        .arg("--store-deadline")
        .arg(format!("{}ms", settings.deadline.as_millis()));
    if let Some(quotas) = &settings.quotas {
        command.args(["--quotas", quotas]);
        command.env("RATEKEEPER_TENANT_KEY", TENANT_KEY);
    }
    Process::spawn(&format!("node on port {}", ports.http), command)
}
