//! A node of the binary.

use std::path::Path;

use ratekeeper_testkit::keep_alive::HttpConnection;
use ratekeeper_testkit::ratekeeper::{Ratekeeper, Setup};

use super::RULES;

/// A running node.
pub(crate) struct Node(Ratekeeper);

impl Node {
    /// Starts a node with a data folder of its own, on the database at `quotas`.
    pub(crate) fn start(binary: &Path, quotas: &str) -> Self {
        let setup = Setup::serve(binary).rules(RULES);
        let setup = setup.variable("RATEKEEPER_TENANT_KEY", "000102030405060708090a0b0c0d0e0f");
        let data = format!("--data-dir data --quotas {quotas}");
        Self(setup.args(&data).start())
    }

    /// A connection to its admin API.
    pub(crate) fn admin(&self) -> HttpConnection {
        HttpConnection::open(self.0.admin)
    }

    /// A connection for checks.
    pub(crate) fn checks(&self) -> HttpConnection {
        HttpConnection::open(self.0.port)
    }

    /// Its resident memory, in bytes.
    pub(crate) fn resident(&self) -> u64 {
        self.0.process.resident_kib() as u64 * 1_024
    }
}
