//! A node of the binary.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::process::Command;

use anyhow::Result;
use ratekeeper_testkit::keep_alive::HttpConnection;
use ratekeeper_testkit::process::{Process, free_port};

use crate::index::of_status;

/// The rules of all measurements.
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

/// A running node.
pub(crate) struct Node {
    process: Process,
    http: u16,
    admin: u16,
}

impl Node {
    /// Starts a node with a data folder of its own in `folder`, on the database at `quotas`.
    pub(crate) fn start(binary: &Path, folder: &Path, name: &str, quotas: &str) -> Result<Self> {
        let folder = folder.join(name);
        fs::create_dir_all(&folder)?;
        fs::write(folder.join("rules.yaml"), RULES)?;
        let ports = [free_port(), free_port(), free_port()];
        let [grpc, http, admin] = ports.map(|port| format!("127.0.0.1:{port}"));
        let mut command = Command::new(binary);
        command
            .current_dir(&folder)
            .env("RATEKEEPER_TENANT_KEY", "000102030405060708090a0b0c0d0e0f")
            .args(["serve", "--rules", "rules.yaml", "--data-dir", "data"])
            .args(["--grpc", &grpc, "--http", &http, "--admin", &admin])
            .args(["--quotas", quotas, "--drain-delay", "0s"]);
        let mut process = Process::spawn(&format!("node {name}"), command);
        process.wait_for_port(ports[1]);
        process.wait_for_port(ports[2]);
        Ok(Self {
            process,
            http: ports[1],
            admin: ports[2],
        })
    }

    /// A connection to its admin API.
    pub(crate) fn admin(&self) -> HttpConnection {
        HttpConnection::open(SocketAddr::from((Ipv4Addr::LOCALHOST, self.admin)))
    }

    /// A connection for checks.
    pub(crate) fn checks(&self) -> HttpConnection {
        HttpConnection::open(SocketAddr::from((Ipv4Addr::LOCALHOST, self.http)))
    }

    /// Its resident memory, in bytes.
    pub(crate) fn resident(&self) -> Result<u64> {
        let path = format!("/proc/{}/status", self.process.id());
        of_status(&fs::read_to_string(path)?)
    }
}
