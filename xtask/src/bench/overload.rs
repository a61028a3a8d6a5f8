//! `cargo xtask bench overload`: goodput and latency under overload; `bench shed`: the cost of all shedders.

use std::process::Command;

use super::measured_by;
use crate::steps::{Steps, cargo, root, target};
use anyhow::Result;

/// Builds everything, then runs it, and draws the plots of the manual; `args` may be `--quick`, which draws them into
/// the folder of results instead.
pub(super) fn overload(args: &[String]) -> Result<()> {
    let mut steps = Steps::new();
    let (program, arguments) = measured_by("overload", &mut steps)?;
    let plots = match args.is_empty() {
        true => root().join("docs"),
        false => target().join("bench"),
    };
    let mut command = Command::new(program);
    command.args(arguments).arg("--docs").arg(&plots).args(args);
    steps.command("overload", &mut command)?;
    let results = target().join("bench/overload.md");
    eprintln!(
        "the results are in {}, the plots in {}",
        results.display(),
        plots.display()
    );
    steps.finish("bench overload");
    Ok(())
}

/// Measures a request with all shedders on.
pub(super) fn cost() -> Result<()> {
    let mut steps = Steps::new();
    let mut command = cargo([
        "bench",
        "--quiet",
        "--locked",
        "--package",
        "ratekeeper-shed",
    ]);
    steps.command("shed", command.args(["--bench", "cost"]))?;
    steps.finish("bench shed");
    Ok(())
}
