//! Databases, rules and tenants for the tests.

use std::future::Future;
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use ratekeeper_core::Timestamp;
use ratekeeper_quota::{DatabaseAddress, Editor, QuotaStore, TenantId};
use ratekeeper_rules::{
    Options, RuleSet, Source, TenantKey, TenantOverride, TenantPlan, TenantQuotas, Term, load,
};
use ratekeeper_testkit::postgres::Server;
use tempfile::TempDir;

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

pub(crate) fn rules() -> RuleSet {
    let source = Source {
        name: "rules.yaml".to_owned(),
        text: RULES.to_owned(),
    };
    let loaded = load(&[source], &Options::default());
    loaded.expect("the rules are right").rules
}

/// A database of either kind, which ends with the test.
pub(crate) enum Database {
    Sqlite(TempDir),
    Postgres(Server),
}

impl Database {
    pub(crate) fn sqlite() -> Self {
        Self::Sqlite(tempfile::tempdir().expect("a folder can be made"))
    }

    pub(crate) fn postgres() -> Self {
        Self::Postgres(Server::start())
    }

    /// The address of a database that is empty.
    pub(crate) fn fresh(&self) -> DatabaseAddress {
        self.fresh_url().parse().expect("it is an address")
    }

    pub(crate) fn fresh_url(&self) -> String {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        match self {
            Self::Sqlite(folder) => {
                let path = folder.path().join(format!("quotas{number}.db"));
                format!("sqlite://{}", path.display())
            }
            Self::Postgres(server) => server.create(&format!("quotas{number}")),
        }
    }
}

pub(crate) fn key() -> TenantKey {
    TenantKey::from_bytes([7; 16])
}

pub(crate) fn store(address: &DatabaseAddress) -> QuotaStore {
    QuotaStore::new(address.clone(), key()).expect("the address is right")
}

pub(crate) fn tenant(name: &str) -> TenantId {
    TenantId::of_value("d", name, false, &key())
}

pub(crate) fn editor() -> Editor {
    Editor {
        name: "alice".to_owned(),
        source: "127.0.0.1:1".to_owned(),
        request_id: "r-1".to_owned(),
    }
}

pub(crate) fn on(plan: &str) -> TenantQuotas {
    TenantQuotas {
        plans: vec![TenantPlan::new(plan)],
        ..TenantQuotas::default()
    }
}

/// A limit on `POST /orders`.
pub(crate) fn orders(requests_per_unit: u64) -> TenantOverride {
    TenantOverride {
        descriptor: ["endpoint:POST /orders"].into_iter().collect(),
        requests_per_unit,
        unit: Some("minute".into()),
        ..TenantOverride::default()
    }
}

pub(crate) fn term(from: u64, until: u64) -> Term {
    Term {
        from: Timestamp::from_secs(from),
        until: Timestamp::from_secs(until),
    }
}

/// Runs a test that waits, on two threads.
pub(crate) fn run<T>(test: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build();
    runtime.expect("a runtime can be made").block_on(test)
}

/// Waits until `condition` is true, for a minute at most.
pub(crate) async fn eventually(what: &str, mut condition: impl AsyncFnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(60);
    while !condition().await {
        assert!(Instant::now() < end, "waited in vain until {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

pub(crate) fn saved(folder: &Path) -> std::path::PathBuf {
    folder.join("quotas.saved")
}
