//! `cargo xtask simulate`: runs of the lease simulation, as many as are wanted.

use crate::steps::{Steps, cargo};
use anyhow::Result;

/// Builds the simulation with optimization and plays it; `args` say how many seeds, or which one.
pub(crate) fn simulate(args: &[String]) -> Result<()> {
    let mut steps = Steps::new();
    let mut command = cargo([
        "run",
        "--release",
        "--locked",
        "--package",
        "ratekeeper-testkit",
        "--example",
        "simulate",
        "--",
    ]);
    steps.command("simulate", command.args(args))?;
    steps.finish("simulate");
    Ok(())
}
