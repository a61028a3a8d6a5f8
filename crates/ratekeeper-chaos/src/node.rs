//! A node: a process of the shipped binary.

use std::path::PathBuf;
use std::time::Duration;

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

/// Starts a node, and waits until it listens.
pub(crate) fn start(settings: &Settings) -> Ratekeeper {
    let deadline = settings.deadline.as_millis();
    let setup = Setup::serve(&settings.program)
        .rules(&settings.rules)
        // Its lines are no faults; those of faults are counted. Binaries that do not know it ignore it.
        .variable("RATEKEEPER_DENIAL_LOG", "0")
        .args(&["--store", &settings.store, "--dynamic-metadata"])
        .args(&format!("--store-deadline {deadline}ms"));
    let setup = match &settings.quotas {
        Some(quotas) => {
            let setup = setup.variable("RATEKEEPER_TENANT_KEY", TENANT_KEY);
            setup.args(&["--quotas", quotas])
        }
        None => setup,
    };
    setup.start()
}
