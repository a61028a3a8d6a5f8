//! `cargo xtask attack`: our release binary against hostile clients.

use crate::need;
use crate::run::release_binary;
use crate::steps::{Steps, cargo};
use anyhow::Result;

/// Attacks with every family, or with those whose names contain one of `args`.
pub(crate) fn attack(args: &[String]) -> Result<()> {
    let mut steps = Steps::new();
    let h2spec = steps.step("tools", "NGINX and the applications behind it", || {
        need::packages(&need::FOR_ATTACK)?;
        need::express()?;
        need::go_tools_if_there(&need::FOR_ATTACK_GO)
    })?;
    let ratekeeper = release_binary()?;
    let run = [
        "run",
        "--locked",
        "--release",
        "-p",
        "ratekeeper-attack",
        "--",
    ];
    let mut command = cargo(run);
    command.arg("--ratekeeper").arg(ratekeeper);
    for (flag, program) in h2spec {
        command.arg(flag).arg(program);
    }
    steps.command("attack", command.args(args))?;
    steps.finish("attack");
    Ok(())
}
