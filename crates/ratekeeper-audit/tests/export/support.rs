//! A quota database with changes, and the node that follows it.

use std::future::Future;
use std::time::{Duration, Instant};

use ratekeeper_audit::{ExportFiles, ExportTarget, Exporter};
use ratekeeper_quota::{
    AuditRow, Editor, Follower, FollowerConfig, Precondition, QuotaStore, TenantId, TenantPut,
};
use ratekeeper_rules::{Options, RuleSet, Source, TenantKey, TenantOverride, TenantQuotas, load};
use tempfile::TempDir;

const RULES: &str = "domain: d
tenant: customer
plans: [free, pro]
descriptors:
- { key: customer, rate_limit: { unit: minute, requests_per_unit: 100 } }
";

/// The name of every stream.
pub(crate) const STREAM: &str = "ratekeeper.audit";

/// A record as a target has it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Received {
    pub(crate) version: u64,
    pub(crate) hash: String,
}

/// A database of tenants.
pub(crate) struct Trail {
    folder: TempDir,
    key: TenantKey,
    pub(crate) quotas: QuotaStore,
    rules: RuleSet,
    made: u64,
}

impl Trail {
    pub(crate) fn new() -> Self {
        let source = Source {
            name: "rules.yaml".to_owned(),
            text: RULES.to_owned(),
        };
        let loaded = load(&[source], &Options::default()).expect("the rules are right");
        let folder = tempfile::tempdir().expect("a folder can be made");
        let key = TenantKey::from_bytes([7; 16]);
        Self {
            quotas: opened(&folder, &key),
            folder,
            key,
            rules: loaded.rules,
            made: 0,
        }
    }

    /// Makes changes, each another one.
    pub(crate) async fn change(&mut self, count: u64) {
        for _ in 0..count {
            self.made += 1;
            let own = TenantOverride {
                requests_per_unit: self.made,
                unit: Some("minute".into()),
                ..TenantOverride::default()
            };
            let quotas = TenantQuotas {
                overrides: vec![own],
                ..TenantQuotas::default()
            };
            let acme = TenantId::of_value("d", "acme", false, &self.key);
            let (any, by) = (Precondition::Any, Editor::default());
            let put = TenantPut::now(acme, quotas);
            let put = self.quotas.put(&put, any, &by, &self.rules);
            put.await.expect("it can be put");
        }
    }

    /// The whole trail, as a target should have it.
    pub(crate) async fn rows(&self) -> Vec<Received> {
        let mut all: Vec<AuditRow> = Vec::new();
        loop {
            let last = all.last().map_or(0, |row| row.version);
            let more = self.quotas.audit(last, 1_000).await.expect("it answers");
            if more.is_empty() {
                break;
            }
            all.extend(more);
        }
        let received = |row: AuditRow| Received {
            version: row.version,
            hash: row.hash,
        };
        all.into_iter().map(received).collect()
    }

    /// Another node on the same database, which exports to `url`.
    pub(crate) async fn node(&self, url: &str) -> Node {
        self.node_with(url, ExportFiles::default()).await
    }

    /// The same, which connects with `files`.
    pub(crate) async fn node_with(&self, url: &str, files: ExportFiles) -> Node {
        let store = opened(&self.folder, &self.key);
        let apply = |_| 0;
        let patience = Duration::from_secs(60);
        let follower = Follower::start(store.clone(), FollowerConfig::default(), apply, patience);
        let follower = follower.await;
        let target = ExportTarget::new(url, STREAM, files).expect("it is a target");
        Node {
            exporter: Exporter::start(store, follower.quota_status().clone(), target),
            _follower: follower,
        }
    }
}

fn opened(folder: &TempDir, key: &TenantKey) -> QuotaStore {
    let url = format!("sqlite://{}", folder.path().join("quotas.db").display());
    let address = url.parse().expect("it is an address");
    QuotaStore::new(address, key.clone()).expect("the address is right")
}

/// A node that exports.
pub(crate) struct Node {
    pub(crate) exporter: Exporter,
    _follower: Follower,
}

/// Checks that a target has got every row at least once, and no row before the ones with smaller numbers.
pub(crate) fn complete_and_in_order(received: &[Received], rows: &[Received]) {
    let mut first_times: Vec<Received> = Vec::new();
    for record in received {
        match first_times
            .iter()
            .find(|known| known.version == record.version)
        {
            Some(known) => assert_eq!(record, known, "a repeated record is the same"),
            None => first_times.push(record.clone()),
        }
    }
    assert_eq!(first_times, rows);
}

/// Waits until `condition` is true, for a minute at most.
pub(crate) async fn eventually(what: &str, mut condition: impl AsyncFnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(60);
    while !condition().await {
        assert!(Instant::now() < end, "waited in vain until {what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
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
