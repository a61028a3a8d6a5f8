//! A node of the binary.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;

use ratekeeper_testkit::keep_alive::HttpConnection;
use ratekeeper_testkit::ratekeeper::{Ratekeeper, Setup};

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
pub(crate) struct Node(Ratekeeper);

impl Node {
    /// Starts a node with a data folder of its own, on the database at `quotas`.
    pub(crate) fn start(binary: &Path, quotas: &str) -> Self {
        let setup = Setup::serve(binary).rules(RULES);
        let setup = setup.variable("RATEKEEPER_TENANT_KEY", "000102030405060708090a0b0c0d0e0f");
        Self(
            setup
                .args(&["--data-dir", "data", "--quotas", quotas])
                .start(),
        )
    }

    /// A connection to its admin API.
    pub(crate) fn admin(&self) -> HttpConnection {
        HttpConnection::open(SocketAddr::from((Ipv4Addr::LOCALHOST, self.0.admin)))
    }

    /// A connection for checks.
    pub(crate) fn checks(&self) -> HttpConnection {
        HttpConnection::open(SocketAddr::from((Ipv4Addr::LOCALHOST, self.0.port)))
    }

    /// Its resident memory, in bytes.
    pub(crate) fn resident(&self) -> u64 {
        self.0.process.resident_kib() as u64 * 1_024
    }
}
