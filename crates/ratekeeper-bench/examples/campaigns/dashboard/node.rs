//! A node with a quota database.

use std::fmt::Write as _;
use std::path::Path;

use anyhow::{Context, Result, bail};
use ratekeeper_testkit::keep_alive::HttpConnection;
use ratekeeper_testkit::ratekeeper::{Ratekeeper, Setup};

use crate::tenants;

/// The domain of the rules.
pub(crate) const DOMAIN: &str = "d";

/// Tenants in one request of the import.
const BATCH: u32 = 1_000;

/// A running node, in a folder of its own.
pub(crate) struct Node(Ratekeeper);

impl Node {
    /// Starts a node with SQLite.
    pub(crate) fn start(binary: &Path) -> Self {
        let setup = Setup::serve(binary).rules(tenants::RULES);
        Self(
            setup
                .args("--data-dir data --quotas sqlite://quotas.db")
                .start(),
        )
    }

    /// Gives each of that many tenants a plan, and a limit of its own. Their names are the keys of a load.
    pub(crate) fn import(&self, tenants: u32) -> Result<()> {
        let mut admin = HttpConnection::open(self.0.admin);
        let plans = ["free", "pro", "enterprise"];
        for first in (0..tenants).step_by(BATCH as usize) {
            let mut csv = "api_key,tier,descriptor,requests_per_unit,unit\n".to_owned();
            for number in first..(first + BATCH).min(tenants) {
                let plan = plans[(number % 3) as usize];
                let limit = number % 1_000 + 1;
                writeln!(
                    csv,
                    "key-{number:012},{plan},endpoint:POST /orders,{limit},minute"
                )?;
            }
            let kind = "Content-Type: text/csv\r\n";
            let answer = admin.ask("POST", "/admin/v1/import/quotas", kind, &csv);
            if answer.status != 200 {
                bail!("the import was refused: {} {}", answer.status, answer.body);
            }
        }
        let known = admin.ask("GET", "/metrics", "", "").body;
        if !known.contains(&format!("ratelimit_quota_tenants {tenants}\n")) {
            bail!("the node does not know all tenants after the import");
        }
        Ok(())
    }

    /// The address of its gRPC port.
    pub(crate) fn grpc(&self) -> String {
        format!("127.0.0.1:{}", self.0.grpc)
    }

    /// The address of its page.
    pub(crate) fn dashboard(&self) -> String {
        format!("http://127.0.0.1:{}/dashboard", self.0.admin)
    }

    /// Its resident memory.
    pub(crate) fn resident_bytes(&self) -> Result<u64> {
        ratekeeper_bench::resident_bytes(self.0.process.id()).context("the node has ended")
    }
}
