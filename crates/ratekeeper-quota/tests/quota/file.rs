//! The file of SQLite, moved or replaced while nodes use it.

use std::fs;
use std::path::Path;
use std::time::Duration;

use ratekeeper_quota::{
    DatabaseAddress, FollowerConfig, Precondition, QuotaError, QuotaStore, TenantPut,
};
use tempfile::tempdir;

use crate::following::Node;
use crate::support::{editor, eventually, on, rules, run, store, tenant};

const PATIENCE: Duration = Duration::from_secs(20);

async fn put(quotas: &QuotaStore, name: &str, plan: &str) -> Result<(), QuotaError> {
    let (put, editor, rules) = (TenantPut::now(tenant(name), on(plan)), editor(), rules());
    let put = quotas.put(&put, Precondition::Any, &editor, &rules);
    put.await.map(drop)
}

/// Moves a database with the files that belong to it, if they are there.
fn move_database(from: &Path, to: &Path) {
    for end in ["", "-wal", "-shm"] {
        let path = |path: &Path| format!("{}{end}", path.display());
        if fs::exists(path(from)).expect("the folder can be read") {
            fs::rename(path(from), path(to)).expect("it can be moved");
        }
    }
}

/// Waits until the node tells that the database is away, and checks that writes are refused for now.
async fn is_away(node: &Node, quotas: &QuotaStore, told: &str) {
    let refused = put(quotas, "bob", "pro").await;
    let error = refused.expect_err("there is nowhere to write to");
    assert!(error.is_temporary(), "{error}");
    let status = node.follower.quota_status();
    eventually("the fault is told", async || {
        status.faults().iter().any(|fault| fault.contains(told))
    })
    .await;
    assert!(status.away().is_some());
    assert_eq!(node.limits("acme").0, Some(1_000), "it serves on");
}

#[test]
fn a_file_that_goes_away_and_comes_back_is_noticed() {
    run(async {
        let folder = tempdir().expect("a folder can be made");
        let (path, aside) = (folder.path().join("q.db"), folder.path().join("aside.db"));
        let quotas = store(&DatabaseAddress::sqlite(&path));
        put(&quotas, "acme", "pro").await.expect("it can be put");
        let node = Node::start(quotas.clone(), FollowerConfig::default(), PATIENCE).await;
        assert_eq!(node.limits("acme").0, Some(1_000));

        move_database(&path, &aside);
        is_away(&node, &quotas, "q.db cannot be read any more").await;
        assert!(!fs::exists(&path).expect("the folder can be read"));
        move_database(&aside, &path);
        eventually("the database answers", async || {
            node.follower.quota_status().away().is_none()
        })
        .await;
        assert_eq!(quotas.version().await.ok(), Some(1), "nothing was written");

        // Something else stands in its place for a while.
        move_database(&path, &aside);
        fs::write(&path, "this is no database".repeat(100)).expect("it can be written");
        is_away(&node, &quotas, "q.db is not the file that was opened").await;
        move_database(&aside, &path);
        eventually("the database answers", async || {
            node.follower.quota_status().away().is_none()
        })
        .await;
        put(&quotas, "bob", "pro").await.expect("it can be put");
        node.follower.look();
        eventually("the change is in force", async || {
            node.limits("bob").0 == Some(1_000)
        })
        .await;
    });
}

#[test]
fn a_file_that_is_replaced_is_used_after_a_restart() {
    run(async {
        let folder = tempdir().expect("a folder can be made");
        let path = |name| folder.path().join(name);
        let (own, other, aside) = (path("q.db"), path("other.db"), path("aside.db"));
        let quotas = store(&DatabaseAddress::sqlite(&own));
        put(&quotas, "acme", "pro").await.expect("it can be put");
        let restored = store(&DatabaseAddress::sqlite(&other));
        let put_there = put(&restored, "acme", "enterprise").await;
        put_there.expect("it can be put");
        let node = Node::start(quotas.clone(), FollowerConfig::default(), PATIENCE).await;

        move_database(&own, &aside);
        move_database(&other, &own);
        is_away(&node, &quotas, "q.db is not the file that was opened").await;
        let restarted = store(&DatabaseAddress::sqlite(&own));
        assert_eq!(
            restarted.version().await.ok(),
            Some(1),
            "nothing was written"
        );
        let restarted = Node::start(restarted, FollowerConfig::default(), PATIENCE).await;
        assert_eq!(restarted.limits("acme").0, Some(5_000));

        // With the first file back, changes are in it.
        move_database(&own, &other);
        move_database(&aside, &own);
        put(&quotas, "bob", "pro").await.expect("it can be put");
        let reopened = store(&DatabaseAddress::sqlite(&own));
        assert_eq!(reopened.version().await.ok(), Some(2), "it is in this file");
        let other = store(&DatabaseAddress::sqlite(&other));
        assert_eq!(other.version().await.ok(), Some(1), "and not in the other");
    });
}
