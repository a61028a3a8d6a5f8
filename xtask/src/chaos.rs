//! `cargo xtask chaos`: tests the release binary while its Redis fails.

use crate::need;
use crate::run::release_binary;
use crate::steps::{Steps, cargo};
use anyhow::Result;

/// Runs every fault, or those whose names contain one of `args`.
pub(crate) fn chaos(args: &[String]) -> Result<()> {
    let mut steps = Steps::new();
    steps.step("tools", "redis-server, and clocks that can be set", || {
        need::packages(&[need::REDIS, need::FAKETIME])
    })?;
    let ratekeeper = release_binary()?;
    let run = [
        "run",
        "--locked",
        "--release",
        "-p",
        "ratekeeper-chaos",
        "--",
    ];
    let mut command = cargo(run);
    command.arg("--ratekeeper").arg(ratekeeper).args(args);
    steps.command("chaos", &mut command)?;
    steps.finish("chaos");
    Ok(())
}
