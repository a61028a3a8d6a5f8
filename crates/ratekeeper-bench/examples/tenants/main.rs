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

mod import;
mod index;
#[path = "../shared/machine.rs"]
mod machine;
mod node;
mod propagation;

use std::fmt::Write as _;
use std::path::PathBuf;

use anyhow::{Context, Result, bail};

/// The sizes of the measurements.
#[derive(Clone, Copy)]
pub(crate) struct Sizes {
    /// Tenants in memory, and imported.
    pub(crate) tenants: u64,
    /// Changes whose way to all nodes is timed.
    pub(crate) changes: usize,
}

/// A row of the table: what was measured, its value, and what it should be at most.
pub(crate) struct Row {
    pub(crate) what: String,
    pub(crate) value: String,
    pub(crate) goal: &'static str,
    pub(crate) is_met: bool,
}

fn main() -> Result<()> {
    let mut args = std::env::args().skip(1);
    let (mut binary, mut out) = (None, None);
    let mut sizes = Sizes {
        tenants: 1_000_000,
        changes: 100,
    };
    while let Some(arg) = args.next() {
        match arg.as_str() {
            "--ratekeeper" => binary = args.next(),
            "--out" => out = args.next(),
            "--quick" => {
                sizes = Sizes {
                    tenants: 20_000,
                    changes: 20,
                };
            }
            other => bail!("there is no argument {other:?}; there is --quick"),
        }
    }
    let binary = PathBuf::from(binary.context("say where the binary is: --ratekeeper PATH")?);
    let mut rows = told(index::measure(sizes.tenants)?);
    rows.extend(told(import::measure(&binary, sizes.tenants)?));
    rows.extend(told(propagation::measure(&binary, sizes.changes)?));
    let table = table(&rows)?;
    print!("{table}");
    if let Some(out) = out.map(PathBuf::from) {
        std::fs::create_dir_all(&out)?;
        std::fs::write(out.join("tenants.md"), &table)?;
    }
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
