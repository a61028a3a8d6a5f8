//! Attacks with one family after the other, and makes rows of them.

use std::path::Path;

use anyhow::{Context, Result, ensure};

use crate::families::{
    addresses, batches, costs, crowds, downgrade, floods, h2spec, hangups, http2, lifted, octets,
    places, secrets, smuggling, spellings, stores, tables, tokens,
};
use crate::plan::Plan;
use crate::row::{HEAD, Row};

/// One family: it attacks, and answers its rows.
type Attack = fn(&Path, &Plan) -> Result<Vec<Row>>;

const FAMILIES: &[(&str, Attack)] = &[
    ("spellings", spellings::attack),
    ("forged addresses", addresses::attack),
    ("smuggling", smuggling::attack),
    ("http/2 smuggling", http2::attack),
    ("tokens", tokens::attack),
    ("secrets", secrets::attack),
    ("costs", costs::attack),
    ("tables", tables::attack),
    ("places", places::attack),
    ("hang-ups", hangups::attack),
    ("permissions", lifted::attack),
    ("octets", octets::attack),
    ("stores", stores::attack),
    ("batches", batches::attack),
    ("crowds", crowds::attack),
    ("downgrade", downgrade::attack),
    ("floods", floods::attack),
    ("h2spec", h2spec::attack),
];

/// Attacks the binary `program` with the families of the plan. Prints a table, and returns how many rows failed.
///
/// # Errors
/// No family has such a name, or a server cannot be started.
pub fn run(program: &Path, plan: &Plan) -> Result<usize> {
    let program = program
        .canonicalize()
        .with_context(|| format!("there is no {}", program.display()))?;
    let wanted: Vec<_> = FAMILIES
        .iter()
        .filter(|(name, _)| plan.wants(name))
        .collect();
    let names: Vec<_> = FAMILIES.iter().map(|(name, _)| *name).collect();
    ensure!(
        !wanted.is_empty(),
        "there is no such family; there are {}",
        names.join(", ")
    );
    println!("{HEAD}");
    let mut failed = 0;
    for (name, attack) in wanted {
        let rows = attack(&program, plan).with_context(|| format!("the family `{name}`"))?;
        for row in rows {
            println!("{row}");
            failed += usize::from(!row.is_met());
        }
    }
    Ok(failed)
}

/// Counts the spellings that get past a limit where some must: with permissive settings, and in front of an application that is
/// laxer than the rules. None would mean that the campaign cannot tell.
///
/// # Errors
/// A server cannot be started.
pub fn spellings_that_must_pass(program: &Path) -> Result<[u64; 2]> {
    let rows = spellings::permissive(program)?;
    Ok(rows.map(|row| {
        println!("{row}");
        row.passed
    }))
}
