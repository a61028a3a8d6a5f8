//! A node: a process of the shipped binary.

use std::path::{Path, PathBuf};
use std::time::Duration;

use ratekeeper_testkit::process::Process;
use ratekeeper_testkit::ratekeeper::{Ratekeeper, Setup};

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
pub(crate) struct Node(Ratekeeper);

/// The ports that a node listens on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ports {
    pub(crate) grpc: u16,
    pub(crate) http: u16,
    pub(crate) admin: u16,
}

impl Node {
    /// Starts a node, and waits until it listens.
    pub(crate) fn start(settings: &Settings) -> Self {
        let deadline = format!("{}ms", settings.deadline.as_millis());
        let setup = Setup::serve(&settings.program)
            .rules(&settings.rules)
            // Its lines are no faults; those of faults are counted. Binaries that do not know it ignore it.
            .variable("RATEKEEPER_DENIAL_LOG", "0")
            .args(&["--store", &settings.store, "--dynamic-metadata"])
            .args(&["--store-deadline", &deadline]);
        let setup = match &settings.quotas {
            Some(quotas) => {
                let setup = setup.variable("RATEKEEPER_TENANT_KEY", TENANT_KEY);
                setup.args(&["--quotas", quotas])
            }
            None => setup,
        };
        Self(setup.start())
    }

    /// Asks it to stop, and starts it again on the same ports.
    pub(crate) fn restart(&mut self) {
        self.0.restart();
    }

    /// Names the binary of the next start.
    pub(crate) fn set_program(&mut self, program: &Path) {
        self.0.set_program(program);
    }

    pub(crate) fn process(&mut self) -> &mut Process {
        &mut self.0.process
    }

    pub(crate) fn ports(&self) -> Ports {
        Ports {
            grpc: self.0.grpc,
            http: self.0.port,
            admin: self.0.admin,
        }
    }

    /// The id of its process.
    pub(crate) fn id(&self) -> u32 {
        self.0.process.id()
    }

    /// The number of log lines since it was last started.
    pub(crate) fn lines(&self) -> u64 {
        self.0.process.lines()
    }

    /// The memory that it has resident now, in KiB.
    pub(crate) fn resident_kib(&self) -> usize {
        self.0.process.resident_kib()
    }

    /// The end of its log.
    pub(crate) fn log(&self) -> String {
        self.0.process.output()
    }
}
