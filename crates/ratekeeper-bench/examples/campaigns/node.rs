//! A node of the binary with a quota database, and many tenants in it.

use std::path::Path;

use anyhow::{Result, ensure};
use ratekeeper_testkit::keep_alive::HttpConnection;
use ratekeeper_testkit::ratekeeper::{Ratekeeper, Setup};

/// The rules of all measurements with tenants.
pub(crate) const RULES: &str = "domain: d
evaluation: path
tenant: customer
plans: [free, pro, enterprise]
descriptors:
- key: customer
  rate_limit: { unit: minute, requests_per_unit: 100 }
  plans:
    pro: { unit: minute, requests_per_unit: 1000 }
    enterprise: { unit: minute, requests_per_unit: 5000 }
  descriptors:
  - { key: endpoint, value: POST /orders, rate_limit: { unit: minute, requests_per_unit: 20 } }
";

/// Tenants in one request of an import.
const BATCH: u32 = 1_000;

/// A running node, in a folder of its own.
pub(crate) struct Node(pub(crate) Ratekeeper);

impl Node {
    /// Starts a node on the database at `quotas`.
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

    /// Gives each of that many tenants a plan, and a limit of its own, a thousand at a time. Their names are the keys of a
    /// load.
    pub(crate) fn import(&self, tenants: u32) -> Result<()> {
        let mut admin = self.admin();
        let plans = ["free", "pro", "enterprise"];
        for first in (0..tenants).step_by(BATCH as usize) {
            let mut csv = "tenant,plan,descriptor,requests_per_unit,unit\n".to_owned();
            for number in first..(first + BATCH).min(tenants) {
                let (plan, limit) = (plans[(number % 3) as usize], number % 1_000 + 1);
                csv += &format!("key-{number:012},{plan},endpoint:POST /orders,{limit},minute\n");
            }
            let kind = "Content-Type: text/csv\r\n";
            let answer = admin.ask("POST", "/admin/v1/import/quotas", kind, &csv);
            let (status, body) = (answer.status, answer.body);
            ensure!(status == 200, "the import was refused: {status} {body}");
        }
        let known = self.0.metric_or_zero("ratelimit_quota_tenants ");
        ensure!(
            known == u64::from(tenants),
            "the node knows {known} tenants after the import"
        );
        Ok(())
    }

    /// Its resident memory, in bytes.
    pub(crate) fn resident_bytes(&self) -> u64 {
        self.0.process.resident_kib() as u64 * 1_024
    }
}
