//! The cost of many tenants: their memory and look-ups in a node, their import through the admin API, and the time until
//! a change is in force on three nodes that share PostgreSQL.
//!
//! `cargo xtask bench tenants` builds the parts and runs it.

#![allow(
    clippy::cast_lossless,
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    reason = "figures of measurements, and of tests, are rounded on purpose"
)]

#[path = "../shared/campaign.rs"]
mod campaign;
#[path = "../shared/files.rs"]
mod files;
mod import;
mod index;
#[path = "../shared/machine.rs"]
mod machine;
mod node;
mod propagation;

use std::fmt::Write as _;

use anyhow::{Result, bail};
use campaign::Args;

/// A row of the table: what was measured, its value, and what it should be at most.
pub(crate) struct Row {
    pub(crate) what: String,
    pub(crate) value: String,
    pub(crate) goal: &'static str,
    pub(crate) is_met: bool,
}

fn main() -> Result<()> {
    let args = Args::read(&[])?;
    let (tenants, changes) = match args.is_quick {
        true => (20_000, 20),
        false => (1_000_000, 100),
    };
    let binary = &args.ratekeeper;
    let mut rows = told(index::measure(tenants)?);
    rows.extend(told(import::measure(binary, tenants)?));
    rows.extend(told(propagation::measure(binary, changes)?));
    args.tell("tenants", &table(&rows)?)?;
    match rows.iter().all(|row| row.is_met) {
        true => Ok(()),
        false => bail!("a goal was not met"),
    }
}

/// Tells rows at once: the next ones take minutes.
fn told(rows: Vec<Row>) -> Vec<Row> {
    for row in &rows {
        eprintln!("{}: {}", row.what, row.value);
    }
    rows
}

fn table(rows: &[Row]) -> Result<String> {
    let (machine, load) = (machine::describe(), machine::load_average());
    let mut table = format!("{machine}; load {load:.1} at the end\n\n");
    table.push_str("| measured | value | goal | met |\n|---|---:|---:|---|\n");
    for Row {
        what,
        value,
        goal,
        is_met,
    } in rows
    {
        let met = match (*is_met, goal.is_empty()) {
            (_, true) => "",
            (true, false) => "yes",
            (false, false) => "**no**",
        };
        writeln!(table, "| {what} | {value} | {goal} | {met} |")?;
    }
    Ok(table)
}
