//! The verbs that build a test program and run it: `attack`, `chaos`, `compat`, `loom`, `regions` and
//! `simulate`.

use crate::need;
use crate::run::release_binary;
use crate::steps::{Steps, cargo, target};
use anyhow::Result;
use std::path::PathBuf;
use std::process::Command;

/// `cargo xtask attack`: the release binary against hostile clients, with every family of attacks or those whose names
/// contain one of `args`.
pub(crate) fn attack(args: &[String]) -> Result<()> {
    let mut steps = Steps::new();
    let h2spec = steps.step("tools", "NGINX and the applications behind it", || {
        need::packages(&need::FOR_ATTACK)?;
        need::express()?;
        need::go_tools_if_there(&need::FOR_ATTACK_GO)
    })?;
    let mut command = program("ratekeeper-attack", h2spec)?;
    steps.command("attack", command.args(args))?;
    steps.finish("attack");
    Ok(())
}

/// `cargo xtask chaos`: the release binary while its Redis fails, by every fault or those whose names contain one of
/// `args`.
pub(crate) fn chaos(args: &[String]) -> Result<()> {
    let mut steps = Steps::new();
    steps.step("tools", "redis-server, and clocks that can be set", || {
        need::packages(&[need::REDIS, need::FAKETIME])
    })?;
    let mut command = program("ratekeeper-chaos", Vec::new())?;
    steps.command("chaos", command.args(args))?;
    steps.finish("chaos");
    Ok(())
}

/// `cargo xtask compat`: the release binary beside envoyproxy/ratelimit, which it installs together with the clients;
/// `args` go to the comparison.
pub(crate) fn compat(args: &[String]) -> Result<()> {
    let mut steps = Steps::new();
    let tools = steps.step("tools", "redis-server, and Go programs", || {
        need::packages(&[need::REDIS])?;
        need::go_tools(&need::FOR_COMPAT)
    })?;
    let mut command = program("ratekeeper-compat", tools)?;
    steps.command("compare", command.args(args))?;
    eprintln!("the tools are in {}", target().join("tools").display());
    steps.finish("compat");
    Ok(())
}

/// `cargo xtask regions`: three regions that share limits with oceans between them, in every scenario or those whose names
/// contain one of `args`. Figures go to `target/regions`.
pub(crate) fn regions(args: &[String]) -> Result<()> {
    let mut steps = Steps::new();
    steps.step("tools", "redis-server, and clocks that can be set", || {
        need::packages(&[need::REDIS, need::FAKETIME])
    })?;
    let mut command = cargo(["run", "--release", "--locked", "--package"]);
    command.args(["ratekeeper-chaos", "--bin", "ratekeeper-regions", "--"]);
    command.arg("--figures").arg(target().join("regions"));
    if !args.iter().any(|arg| arg == "--ratekeeper") {
        command.arg("--ratekeeper").arg(release_binary()?);
    }
    steps.command("regions", command.args(args))?;
    steps.finish("regions");
    Ok(())
}

/// Runs `package` with the paths of the release binary, which it builds, and of `tools`.
fn program(package: &str, tools: Vec<(&'static str, PathBuf)>) -> Result<Command> {
    let mut command = cargo(["run", "--release", "--locked", "--package"]);
    command.args([package, "--", "--ratekeeper"]);
    command.arg(release_binary()?);
    for (flag, program) in tools {
        command.arg(flag).arg(program);
    }
    Ok(command)
}

/// `cargo xtask loom`: the word of a lease, in every order in which its threads can meet.
///
/// The model is built with loom's atomics, so it has a target folder of its own.
pub(crate) fn loom() -> Result<()> {
    let mut command = cargo(["test", "--package", "ratekeeper-core"]);
    command.args(["--test", "slot_model"]);
    command.env("RUSTFLAGS", "--cfg ratekeeper_loom");
    command.env("CARGO_TARGET_DIR", target().join("loom"));
    Steps::only("loom", &mut command)
}

/// `cargo xtask simulate`: the lease simulation, optimised; `args` say how many seeds, or which one.
pub(crate) fn simulate(args: &[String]) -> Result<()> {
    let mut command = cargo(["run", "--release", "--locked", "--package"]);
    command.args(["ratekeeper-testkit", "--example", "simulate", "--"]);
    Steps::only("simulate", command.args(args))
}
