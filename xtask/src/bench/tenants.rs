//! `cargo xtask bench tenants`: memory, look-ups, import and propagation of many tenants.

use super::measured_by;
use crate::need::{self, POSTGRESQL};
use crate::steps::{Steps, target};
use anyhow::Result;
use std::process::Command;

/// Builds everything, then runs it; `args` may be `--quick`.
pub(super) fn tenants(args: &[String]) -> Result<()> {
    let mut steps = Steps::new();
    steps.step("tools", "postgresql", || need::packages(&[POSTGRESQL]))?;
    let (program, arguments) = measured_by("tenants", &mut steps)?;
    let mut command = Command::new(program);
    steps.command("tenants", command.args(arguments).args(args))?;
    let results = target().join("bench/tenants.md");
    eprintln!("the results are in {}", results.display());
    steps.finish("bench tenants");
    Ok(())
}
