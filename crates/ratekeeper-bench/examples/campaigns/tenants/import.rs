//! Tenants imported through the admin API, a thousand at a time.

use std::fmt::Write as _;
use std::path::Path;
use std::time::Instant;

use anyhow::{Result, bail};
use ratekeeper_testkit::postgres::Server;

use super::Row;
use super::node::Node;

/// The tenants of one request.
const BATCH: u64 = 1_000;

/// Imports into SQLite and into PostgreSQL.
pub(crate) fn measure(binary: &Path, tenants: u64) -> Result<Vec<Row>> {
    let folder = tempfile::tempdir()?;
    let sqlite = format!("sqlite://{}", folder.path().join("quotas.db").display());
    let mut rows = import(binary, ("SQLite", &sqlite), tenants)?;
    let server = Server::start();
    let postgres = server.create("quotas");
    rows.extend(import(binary, ("PostgreSQL", &postgres), tenants)?);
    Ok(rows)
}

fn import(binary: &Path, (database, url): (&str, &str), tenants: u64) -> Result<Vec<Row>> {
    eprintln!("{tenants} tenants into {database}");
    let node = Node::start(binary, url);
    let before = node.resident();
    let mut admin = node.admin();
    let start = Instant::now();
    for first in (0..tenants).step_by(BATCH as usize) {
        let mut csv = "tenant,plan,descriptor,requests_per_unit,unit\n".to_owned();
        for number in first..(first + BATCH).min(tenants) {
            let limit = number % 1_000 + 1;
            writeln!(
                csv,
                "customer-{number},pro,endpoint:POST /orders,{limit},minute"
            )?;
        }
        let answer = admin.ask(
            "POST",
            "/admin/v1/import/quotas",
            "Content-Type: text/csv\r\n",
            &csv,
        );
        if answer.status != 200 {
            bail!("an import was refused: {} {}", answer.status, answer.body);
        }
    }
    let took = start.elapsed();
    let grown = node.resident().saturating_sub(before);
    let known = admin.ask("GET", "/metrics", "", "").body;
    if !known.contains(&format!("ratelimit_quota_tenants {tenants}\n")) {
        bail!("the node does not know all tenants after the import");
    }
    let rate = tenants as f64 / took.as_secs_f64();
    let secs = took.as_secs_f64();
    Ok(vec![
        Row {
            what: format!("import of {tenants} tenants through the API, {database}"),
            value: format!("{secs:.0} s, {rate:.0} a second"),
            goal: "",
            is_met: true,
        },
        Row {
            what: format!("memory by which the node has grown then, {database}"),
            value: format!("{} MB", grown / 1_000_000),
            goal: "",
            is_met: true,
        },
    ])
}
