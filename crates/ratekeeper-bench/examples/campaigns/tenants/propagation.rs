//! The time until a change through one node is in force on three that share PostgreSQL.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use ratekeeper_testkit::keep_alive::HttpConnection;
use ratekeeper_testkit::postgres::Server;

use super::Row;
use crate::node::Node;

/// The longest that a change may take.
const MAX: Duration = Duration::from_secs(10);

/// The time that half of the changes should take at most.
const USUAL: Duration = Duration::from_secs(1);

const NODES: usize = 3;

/// Changes a tenant's limit again and again, each time through the next node, and asks all of them until each answers
/// by the new one.
pub(crate) fn measure(binary: &Path, changes: usize) -> Result<Vec<Row>> {
    eprintln!("{changes} changes on three nodes");
    let server = Server::start();
    let url = server.create("quotas");
    let nodes = [(); NODES].map(|()| Node::start(binary, &url));
    let mut admins: Vec<_> = nodes.iter().map(Node::admin).collect();
    let mut checks: Vec<_> = nodes
        .iter()
        .map(|node| HttpConnection::open(node.0.port))
        .collect();
    let mut times = Vec::with_capacity(changes);
    for number in 0..changes {
        let limit = 10_000 + number as u64;
        let body = format!(
            "{{\"plan\":\"pro\",\"overrides\":[{{\"requests_per_unit\":{limit},\"unit\":\"minute\"}}]}}"
        );
        let start = Instant::now();
        let answer = admins[number % NODES].ask("PUT", "/admin/v1/quotas/acme", "", &body);
        if answer.status != 200 {
            bail!("a change was refused: {} {}", answer.status, answer.body);
        }
        for node in &mut checks {
            until_in_force(node, limit)?;
        }
        times.push(start.elapsed());
    }
    times.sort();
    let (median, slowest) = (times[changes / 2], times[changes - 1]);
    let row = |what: &str, time: Duration, goal, most| Row {
        what: what.to_owned(),
        value: format!("{} ms", time.as_millis()),
        goal,
        is_met: time <= most,
    };
    Ok(vec![
        row(
            "from a change until it is in force on three nodes, median",
            median,
            "1 s",
            USUAL,
        ),
        row("the slowest", slowest, "10 s", MAX),
    ])
}

fn until_in_force(node: &mut HttpConnection, limit: u64) -> Result<()> {
    let body = "{\"domain\":\"d\",\"descriptors\":[{\"entries\":[{\"key\":\"customer\",\"value\":\"acme\"}]}]}";
    let start = Instant::now();
    while start.elapsed() < 3 * MAX {
        let answer = node.ask("POST", "/v1/peek", "", body).body;
        let answer: serde_json::Value = serde_json::from_str(&answer)?;
        if answer["limit"].as_u64().context("there is a limit")? == limit {
            return Ok(());
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    bail!("a change is not in force after {:?}", 3 * MAX)
}
