//! A node with a quota database.

use std::fmt::Write as _;
use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};
use ratekeeper_testkit::keep_alive::HttpConnection;
use ratekeeper_testkit::process::{Process, free_port};
use tempfile::TempDir;

/// The domain of the rules.
pub(crate) const DOMAIN: &str = "d";

const RULES: &str = "domain: d
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

/// Tenants in one request of the import.
const BATCH: u32 = 1_000;

/// A running node, in a folder of its own.
pub(crate) struct Node {
    process: Process,
    grpc: u16,
    admin: u16,
    _folder: TempDir,
}

impl Node {
    /// Starts a node with SQLite.
    pub(crate) fn start(binary: &Path) -> Result<Self> {
        let folder = tempfile::tempdir()?;
        fs::write(folder.path().join("rules.yaml"), RULES)?;
        let ports = [free_port(), free_port(), free_port()];
        let [grpc, http, admin] = ports.map(|port| format!("127.0.0.1:{port}"));
        let mut command = Command::new(binary);
        command
            .current_dir(folder.path())
            .args(["serve", "--rules", "rules.yaml", "--data-dir", "data"])
            .args(["--grpc", &grpc, "--http", &http, "--admin", &admin])
            .args(["--quotas", "sqlite://quotas.db", "--drain-delay", "0s"]);
        let mut process = Process::spawn("ratekeeper", command);
        process.wait_for_port(ports[0]);
        process.wait_for_port(ports[2]);
        Ok(Self {
            process,
            grpc: ports[0],
            admin: ports[2],
            _folder: folder,
        })
    }

    /// Gives each of that many tenants a plan, and a limit of its own. Their names are the keys of a load.
    pub(crate) fn import(&self, tenants: u32) -> Result<()> {
        let to = SocketAddr::from((Ipv4Addr::LOCALHOST, self.admin));
        let mut admin = HttpConnection::open(to);
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
        format!("127.0.0.1:{}", self.grpc)
    }

    /// The address of its page.
    pub(crate) fn dashboard(&self) -> String {
        format!("http://127.0.0.1:{}/dashboard", self.admin)
    }

    /// Its resident memory.
    pub(crate) fn resident_bytes(&self) -> Result<u64> {
        ratekeeper_bench::resident_bytes(self.process.id()).context("the node has ended")
    }
}
