//! `cargo xtask chaos`: what callers see while Redis fails.

use crate::need;
use crate::steps::{Steps, cargo};
use anyhow::Result;

/// Lives through every fault, or through those whose names contain one of `args`.
pub(crate) fn chaos(args: &[String]) -> Result<()> {
    let mut steps = Steps::new();
    steps.step("redis-server", "install", || need::packages(&[need::REDIS]))?;
    let run = [
        "run",
        "--locked",
        "--release",
        "-p",
        "ratekeeper-store-redis",
    ];
    let mut command = cargo(run);
    command.args(["--example", "chaos", "--"]).args(args);
    steps.command("chaos", &mut command)?;
    steps.finish("chaos");
    Ok(())
}
