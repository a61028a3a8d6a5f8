//! Nodes that follow a database: in step, through its absence, and after a restart without it.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use ratekeeper_core::Timestamp;
use ratekeeper_quota::{
    DatabaseAddress, Follower, FollowerConfig, Precondition, QuotaStore, TenantPut,
};
use ratekeeper_rules::{Entry, RuleSet, TenantQuotas};
use ratekeeper_testkit::postgres::Server;
use tempfile::tempdir;

use crate::support::{Database, editor, eventually, on, orders, rules, run, saved, store, tenant};

/// A node: rules with the tenants in force.
pub(crate) struct Node {
    rules: Arc<Mutex<RuleSet>>,
    pub(crate) follower: Follower,
}

const PATIENCE: Duration = Duration::from_secs(20);

impl Node {
    pub(crate) async fn start(
        quotas: QuotaStore,
        config: FollowerConfig,
        patience: Duration,
    ) -> Self {
        let in_force = Arc::new(Mutex::new(rules()));
        let (applied, files) = (Arc::clone(&in_force), rules());
        let apply = move |index| {
            let joined = files.with_tenants(&index);
            *applied.lock() = joined.rules;
            joined.unknown
        };
        Self {
            follower: Follower::start(quotas, config, apply, patience).await,
            rules: in_force,
        }
    }

    /// The limit of a tenant's calls, and of its calls of `POST /orders`.
    pub(crate) fn limits(&self, name: &str) -> (Option<u64>, Option<u64>) {
        let entry = |key, value| Entry { key, value };
        let rules = self.rules.lock();
        let domain = rules.domain("d").expect("the domain");
        let limit = |entries: &[Entry<'_>]| {
            let walk = domain.walk(entries);
            let now = Timestamp::from_secs(1_800_000_000);
            let rule = domain
                .subscription(entries, now)
                .rules(entries, &walk)
                .first()?;
            Some(rules.rule(rule).limited()?.quota())
        };
        let tenant = entry("customer", name);
        let orders = entry("endpoint", "POST /orders");
        (limit(&[tenant]), limit(&[tenant, orders]))
    }
}

#[test]
fn sqlite_changes_are_in_force() {
    run(changes_are_in_force(&Database::sqlite()));
}

#[test]
fn postgres_changes_are_in_force() {
    run(changes_are_in_force(&Database::postgres()));
}

async fn changes_are_in_force(database: &Database) {
    let (address, rules) = (database.fresh(), rules());
    let quotas = store(&address);
    put(&quotas, "early", &on("enterprise"), &rules).await;
    let mut nodes = Vec::new();
    for _ in 0..3 {
        nodes.push(Node::start(store(&address), FollowerConfig::default(), PATIENCE).await);
    }
    for node in &nodes {
        assert_eq!(
            node.limits("early"),
            (Some(5_000), Some(20)),
            "from the start"
        );
        assert_eq!(node.limits("acme"), (Some(100), Some(20)));
    }
    let everywhere = async |name: &str, limits: (u64, u64)| {
        let start = Instant::now();
        let limits = (Some(limits.0), Some(limits.1));
        eventually("it is in force everywhere", async || {
            nodes.iter().all(|node| node.limits(name) == limits)
        })
        .await;
        start.elapsed()
    };
    let own = TenantQuotas {
        overrides: vec![orders(500)],
        ..on("pro")
    };
    let mut slowest = Duration::ZERO;
    put(&quotas, "acme", &own, &rules).await;
    slowest = slowest.max(everywhere("acme", (1_000, 500)).await);
    put(&quotas, "acme", &on("enterprise"), &rules).await;
    slowest = slowest.max(everywhere("acme", (5_000, 20)).await);
    let gone = quotas
        .delete("d", tenant("acme").hash, Precondition::Any, &editor())
        .await;
    gone.expect("it was there");
    slowest = slowest.max(everywhere("acme", (100, 20)).await);
    println!("the slowest of three changes was in force on three nodes after {slowest:?}");
    assert!(slowest < Duration::from_secs(10), "{slowest:?}");
    eventually("all nodes say so", async || {
        nodes.iter().all(|node| {
            let status = node.follower.quota_status();
            status.tenants() == 1 && status.faults().is_empty()
        })
    })
    .await;
}

async fn put(quotas: &QuotaStore, name: &str, of: &TenantQuotas, rules: &RuleSet) {
    let (put, by) = (TenantPut::now(tenant(name), of.clone()), editor());
    let put = quotas.put(&put, Precondition::Any, &by, rules);
    put.await.expect("it can be put");
}

/// The settings of a node that keeps its copy in `folder`.
fn keeping(folder: &Path) -> FollowerConfig {
    FollowerConfig {
        saved: Some(saved(folder)),
        ..FollowerConfig::default()
    }
}

/// A node with a change in force that came just after its copy was saved, which happens again in ten seconds.
async fn changed_since_saved(address: &DatabaseAddress, config: &FollowerConfig) -> Node {
    let (quotas, rules) = (store(address), rules());
    put(&quotas, "acme", &on("pro"), &rules).await;
    let node = Node::start(store(address), config.clone(), PATIENCE).await;
    let path = config.saved.clone().expect("it keeps a copy");
    eventually("the copy is saved", async || path.exists()).await;
    put(&quotas, "acme", &on("enterprise"), &rules).await;
    node.follower.look();
    eventually("the change is in force", async || {
        node.limits("acme").0 == Some(5_000)
    })
    .await;
    node
}

#[test]
fn a_start_without_postgres_goes_by_the_saved_copy() {
    let mut server = Server::start();
    let address: DatabaseAddress = server.url("postgres").parse().expect("it is an address");
    let folder = tempdir().expect("a folder can be made");
    let config = keeping(folder.path());
    run(async {
        let (quotas, rules) = (store(&address), rules());
        put(&quotas, "acme", &on("pro"), &rules).await;
        let node = Node::start(store(&address), config.clone(), PATIENCE).await;
        assert_eq!(node.limits("acme").0, Some(1_000));
        let path = saved(folder.path());
        eventually("the copy is saved", async || path.exists()).await;

        // While it is away, everything stays in force, and says so.
        server.kill();
        let status = node.follower.quota_status();
        eventually("the node notices", async || status.away().is_some()).await;
        assert_eq!(node.limits("acme").0, Some(1_000));
        assert_eq!(status.faults().len(), 1, "{:?}", status.faults());

        // A node that starts now knows what was saved; one without a copy does not wait either.
        let short = Duration::from_millis(200);
        let restarted = Node::start(store(&address), config.clone(), short).await;
        assert_eq!(restarted.limits("acme").0, Some(1_000));
        assert!(restarted.follower.quota_status().is_known());
        let nothing = Node::start(store(&address), FollowerConfig::default(), short).await;
        assert_eq!(
            nothing.limits("acme"),
            (Some(100), Some(20)),
            "the default plan"
        );
        assert!(!nothing.follower.quota_status().is_known());
        let lenient = FollowerConfig {
            allows_unknown: true,
            fleet: None,
            ..FollowerConfig::default()
        };
        let lenient = Node::start(store(&address), lenient, short).await;
        assert_eq!(lenient.limits("acme"), (None, None), "no limit at all");

        // It comes back, with changes.
        server.restart();
        put(&quotas, "acme", &on("enterprise"), &rules).await;
        let all = [&node, &restarted, &nothing, &lenient];
        eventually("all nodes have the change", async || {
            all.iter().all(|node| node.limits("acme").0 == Some(5_000))
        })
        .await;
        for node in all {
            eventually("nothing is wrong any more", async || {
                node.follower.quota_status().faults().is_empty()
            })
            .await;
        }
    });
}

#[test]
fn a_damaged_copy_is_not_used() {
    let folder = tempdir().expect("a folder can be made");
    let path = saved(folder.path());
    let config = FollowerConfig {
        saved: Some(path.clone()),
        allows_unknown: false,
        fleet: None,
    };
    let database = Database::sqlite();
    run(async {
        let (address, rules) = (database.fresh(), rules());
        put(&store(&address), "acme", &on("pro"), &rules).await;
        let node = Node::start(store(&address), config.clone(), PATIENCE).await;
        eventually("the copy is saved", async || path.exists()).await;
        drop(node);
        let whole = std::fs::read_to_string(&path).expect("it can be read");
        assert!(!whole.contains("acme"), "values are not in it");
        // A folder is no database.
        let away: DatabaseAddress = format!("sqlite://{}", folder.path().display())
            .parse()
            .expect("it is an address");
        let short = Duration::from_millis(500);
        let node = Node::start(store(&away), config.clone(), short).await;
        assert_eq!(node.limits("acme").0, Some(1_000), "the copy is in force");
        for damaged in [
            whole.replace("pro", "max"),
            whole[..whole.len() / 2].to_owned(),
            whole.lines().take(2).collect::<Vec<_>>().join("\n"),
            String::new(),
        ] {
            std::fs::write(&path, &damaged).expect("it can be written");
            let node = Node::start(store(&away), config.clone(), short).await;
            assert_eq!(node.limits("acme").0, Some(100), "{damaged}");
        }
    });
}

#[test]
fn a_clean_stop_saves_what_changed_last() {
    let folder = tempdir().expect("a folder can be made");
    let config = keeping(folder.path());
    let database = Database::sqlite();
    run(async {
        let node = changed_since_saved(&database.fresh(), &config).await;
        node.follower.save().await;
        drop(node);
        let away: DatabaseAddress = format!("sqlite://{}", folder.path().display())
            .parse()
            .expect("it is an address");
        let short = Duration::from_millis(500);
        let restarted = Node::start(store(&away), config, short).await;
        assert_eq!(restarted.limits("acme").0, Some(5_000));
    });
}

#[test]
fn a_clean_stop_while_postgres_is_away_saves_what_changed_last() {
    let mut server = Server::start();
    let address: DatabaseAddress = server.url("postgres").parse().expect("it is an address");
    let folder = tempdir().expect("a folder can be made");
    let config = keeping(folder.path());
    run(async {
        let node = changed_since_saved(&address, &config).await;
        server.kill();
        let status = node.follower.quota_status();
        eventually("the node notices", async || status.away().is_some()).await;
        node.follower.save().await;
        drop(node);
        let short = Duration::from_millis(200);
        let restarted = Node::start(store(&address), config, short).await;
        assert_eq!(restarted.limits("acme").0, Some(5_000));
    });
}

#[test]
fn a_copy_that_could_not_be_saved_is_saved_once_it_can_be() {
    let folder = tempdir().expect("a folder can be made");
    let later = folder.path().join("later");
    let config = keeping(&later);
    let database = Database::sqlite();
    run(async {
        let (address, rules) = (database.fresh(), rules());
        put(&store(&address), "acme", &on("pro"), &rules).await;
        let node = Node::start(store(&address), config.clone(), PATIENCE).await;
        node.follower.save().await;
        assert!(!saved(&later).exists(), "its folder is not there");
        std::fs::create_dir(&later).expect("a folder can be made");
        node.follower.save().await;
        drop(node);
        let away: DatabaseAddress = format!("sqlite://{}", folder.path().display())
            .parse()
            .expect("it is an address");
        let short = Duration::from_millis(500);
        let restarted = Node::start(store(&away), config, short).await;
        assert_eq!(restarted.limits("acme").0, Some(1_000));
    });
}
