//! Tenants imported through the admin API, a thousand at a time.

use std::path::Path;
use std::time::Instant;

use anyhow::Result;
use ratekeeper_testkit::postgres::Server;

use super::Row;
use crate::node::Node;

/// Imports into SQLite and into PostgreSQL.
pub(crate) fn measure(binary: &Path, tenants: u32) -> Result<Vec<Row>> {
    let folder = tempfile::tempdir()?;
    let sqlite = format!("sqlite://{}", folder.path().join("quotas.db").display());
    let mut rows = import(binary, ("SQLite", &sqlite), tenants)?;
    let server = Server::start();
    let postgres = server.create("quotas");
    rows.extend(import(binary, ("PostgreSQL", &postgres), tenants)?);
    Ok(rows)
}

fn import(binary: &Path, (database, url): (&str, &str), tenants: u32) -> Result<Vec<Row>> {
    eprintln!("{tenants} tenants into {database}");
    let node = Node::start(binary, url);
    let before = node.resident_bytes();
    let start = Instant::now();
    node.import(tenants)?;
    let secs = start.elapsed().as_secs_f64();
    let grown = node.resident_bytes().saturating_sub(before);
    let rate = f64::from(tenants) / secs;
    let row = |what, value| Row {
        what,
        value,
        goal: "",
        is_met: true,
    };
    let imported = format!("import of {tenants} tenants through the API, {database}");
    let memory = format!("memory by which the node has grown then, {database}");
    Ok(vec![
        row(imported, format!("{secs:.0} s, {rate:.0} a second")),
        row(memory, format!("{} MB", grown / 1_000_000)),
    ])
}
