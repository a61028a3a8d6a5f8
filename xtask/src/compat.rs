//! `cargo xtask compat`: compares the release binary with envoyproxy/ratelimit.

use crate::need;
use crate::run::release_binary;
use crate::steps::{Steps, cargo, target};
use anyhow::Result;

/// Installs envoyproxy/ratelimit and the clients, builds our two programs and compares; `args` go
/// to the comparison.
pub(crate) fn compat(args: &[String]) -> Result<()> {
    let mut steps = Steps::new();
    let programs = steps.step("tools", "redis-server, and Go programs", || {
        need::packages(&[need::REDIS])?;
        need::go_tools(&need::FOR_COMPAT)
    })?;
    let ratekeeper = release_binary()?;
    let mut command = cargo([
        "run",
        "--release",
        "--locked",
        "--package",
        "ratekeeper-compat",
        "--",
    ]);
    command.arg("--ratekeeper").arg(ratekeeper);
    for (flag, program) in programs {
        command.arg(flag).arg(program);
    }
    command.args(["--redis", "redis-server"]).args(args);
    steps.command("compare", &mut command)?;
    eprintln!("the tools are in {}", target().join("tools").display());
    steps.finish("compat");
    Ok(())
}
