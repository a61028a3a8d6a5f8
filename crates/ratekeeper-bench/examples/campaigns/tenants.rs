//! The cost of many tenants: their memory and look-ups in a node, their import through the admin API, and the time until
//! a change is in force on three nodes that share PostgreSQL.
//!
//! `cargo xtask bench tenants` builds the parts and runs it.

mod import;
mod index;
mod propagation;

use std::fmt::Write as _;

use crate::args::{Args, Words};
use crate::machine;
use anyhow::{Result, bail};

/// A row of the table: what was measured, its value, and what it should be at most.
pub(crate) struct Row {
    pub(crate) what: String,
    pub(crate) value: String,
    pub(crate) goal: &'static str,
    pub(crate) is_met: bool,
}

pub(crate) fn main(words: Words) -> Result<()> {
    let args = Args::of(words, &[], &[])?;
    let (tenants, changes) = match args.is_quick {
        true => (20_000_u32, 20),
        false => (1_000_000, 100),
    };
    let binary = &args.ratekeeper;
    let mut rows = told(index::measure(tenants.into())?);
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
