//! Nodes that share counters tell each other which quota database they use: with several databases, callers would be
//! given different plans by different nodes.
//!
//! Each node lays out the identity of its database on a board in Redis, every two seconds. A node of an older version
//! lays out nothing, and is not missed.

use super::chosen::has_tenants;
use crate::background::Background;
use anyhow::{Result, bail};
use parking_lot::Mutex;
use ratekeeper_core::formats::DATABASE_REPORT;
use ratekeeper_limiter::Limiter;
use ratekeeper_quota::{DatabaseIdentity, DatabaseKind, QuotaStore};
use ratekeeper_server::MaintenanceTask;
use ratekeeper_store_redis::NodeBoard;
use ratekeeper_stores::Stores;
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{MissedTickBehavior, interval, sleep, timeout};
use tracing::{info, warn};

/// The time between two reports of a node.
const EVERY: Duration = Duration::from_secs(2);

/// The age of a report beyond which its node counts as gone.
const AGE_MAX: Duration = Duration::from_secs(5);

/// The longest that a start waits to read the board: a Redis that is away keeps no node from starting.
const READ_MAX: Duration = Duration::from_secs(2);

/// The report of a node.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
struct DatabaseReport {
    /// The version of the format.
    format: u32,
    node: String,
    database: String,
    /// True if tenants were ever changed in the database.
    has_changes: bool,
}

/// The fault of nodes with several databases, if they have.
pub(super) type Dispute = Arc<Mutex<Option<String>>>;

/// A node that reports its database.
#[derive(Clone)]
pub(super) struct Reporter {
    pub(super) store: QuotaStore,
    pub(super) board: Arc<NodeBoard>,
    pub(super) node: String,
    /// The rules of a node whose database was not named: unless they have tenants, it does not matter to others.
    pub(super) unnamed_for: Option<Arc<Limiter<Stores>>>,
    pub(super) dispute: Dispute,
}

impl Reporter {
    /// Reports until the result is dropped.
    pub(super) fn start(self, task: Arc<MaintenanceTask>) -> Background {
        Background::start(task, move || self.clone().keep_reporting())
    }

    async fn keep_reporting(self) {
        let mut ticks = interval(EVERY);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            if !self.is_needed() {
                *self.dispute.lock() = None;
                continue;
            }
            if let Ok(found) = self.report().await {
                record(found, &self.dispute);
            }
        }
    }

    fn is_needed(&self) -> bool {
        let mut limiters = self.unnamed_for.iter();
        limiters.all(|limiter| has_tenants(limiter.snapshot().rules()))
    }

    /// Reports once; returns the fault of nodes with another database.
    ///
    /// # Errors
    /// Nothing new is known of them: the database or Redis is away, which is told elsewhere.
    async fn report(&self) -> Result<Option<String>> {
        let own = self.store.identity().await?;
        let report = DatabaseReport {
            format: DATABASE_REPORT.version,
            node: self.node.clone(),
            database: own.name,
            has_changes: own.has_changes,
        };
        self.board.publish(&serde_json::to_string(&report)?).await?;
        let others = read(&self.board).await?;
        Ok(disagreement(&report, &others))
    }
}

/// Refuses to serve with a file of this node's alone while another node has tenants elsewhere.
///
/// # Errors
/// There is such a node.
pub(super) async fn refuse_second(store: &QuotaStore, board: &NodeBoard) -> Result<()> {
    if store.address().kind() != DatabaseKind::Sqlite {
        // Nodes that move to a database for all of them do so one by one; until then it is a fault.
        return Ok(());
    }
    // What cannot be read now is found out later.
    let Ok(own) = store.identity().await else {
        return Ok(());
    };
    if elsewhere(board, &own).await.is_none() {
        return Ok(());
    }
    // A node that has just ended is still on the board; one that lives reports again.
    sleep(AGE_MAX).await;
    let Some(other) = elsewhere(board, &own).await else {
        return Ok(());
    };
    bail!(
        "--quotas {}: node {} shares these counters and has tenants in another quota database, so callers would get \
         other plans here; give all nodes the same PostgreSQL with --quotas postgres://…, or stop that node",
        store.address(),
        other.node
    )
}

/// A node that lives and has tenants in another database.
async fn elsewhere(board: &NodeBoard, own: &DatabaseIdentity) -> Option<DatabaseReport> {
    let reports = timeout(READ_MAX, read(board)).await.ok()?.ok()?;
    let mut others = reports.into_iter();
    others.find(|report| report.database != own.name && report.has_changes)
}

/// The reports of other nodes that live.
async fn read(board: &NodeBoard) -> Result<Vec<DatabaseReport>> {
    let lists = board.read().await?.lists.into_iter();
    let live = lists.filter(|list| list.age <= AGE_MAX);
    // Those of a later version are not understood.
    let reports = live.filter_map(|list| serde_json::from_str(&list.text).ok());
    let known = |it: &DatabaseReport| DATABASE_REPORT.check(it.format).is_ok();
    Ok(reports.filter(known).collect())
}

/// The fault of nodes with another database than this one's.
fn disagreement(own: &DatabaseReport, others: &[DatabaseReport]) -> Option<String> {
    let others = others.iter().filter(|other| other.database != own.database);
    let mut names: Vec<_> = others.map(|other| &*other.node).collect();
    names.sort_unstable();
    let (first, more) = (names.first()?, names.len() - 1);
    let more = match more {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    Some(format!(
        "node {first}{more} shares these counters and uses another quota database: callers get other plans there; use \
         one PostgreSQL for all nodes"
    ))
}

fn record(found: Option<String>, dispute: &Dispute) {
    let mut known = dispute.lock();
    match (&*known, &found) {
        (None, Some(why)) => warn!("{why}"),
        (Some(_), None) => info!("all nodes use the same quota database again"),
        _ => {}
    }
    *known = found;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_with_another_database_are_named() {
        let report = |node: &str, database: &str| DatabaseReport {
            format: DATABASE_REPORT.version,
            node: node.to_owned(),
            database: database.to_owned(),
            has_changes: false,
        };
        let own = report("a", "one");
        assert_eq!(disagreement(&own, &[]), None);
        assert_eq!(disagreement(&own, &[report("b", "one")]), None);
        let others = [report("c", "two"), report("b", "three"), report("d", "one")];
        let said = disagreement(&own, &others);
        assert!(said.is_some_and(|said| said.starts_with("node b and 1 more shares")));
    }
}
