//! The lists of changes by their outcome.

use crate::changes::Change;
use crate::trial::Outcome;
use anyhow::{Context, Result, ensure};
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

/// Writes a list for each outcome, `missed.txt` and the like, with a line for each change.
pub(crate) fn write(out: &Path, changes: &[Change], outcomes: &[Outcome]) -> Result<()> {
    ensure!(
        changes.len() == outcomes.len(),
        "only {} of {} changes have an outcome",
        outcomes.len(),
        changes.len()
    );
    fs::create_dir_all(out).with_context(|| format!("cannot make {}", out.display()))?;
    for (wanted, name) in [
        (Outcome::Caught, "caught"),
        (Outcome::Hung, "hung"),
        (Outcome::Uncompilable, "uncompilable"),
        (Outcome::Untried, "untried"),
        (Outcome::Missed, "missed"),
    ] {
        let mut list = String::new();
        for (change, outcome) in changes.iter().zip(outcomes) {
            if *outcome == wanted {
                writeln!(list, "{}", change.name)?;
            }
        }
        let path = out.join(name).with_extension("txt");
        fs::write(&path, list).with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(())
}
