//! `cargo xtask bench seed`: the performance test of the article that service levels come from.

use std::process::Command;

use super::grpc::{LOAD_CORE, UTIL_LINUX};
use crate::need::{self, NGINX, REDIS};
use crate::run::release_binary;
use crate::steps::{Steps, cargo, target};
use anyhow::{Result, bail};

/// Builds everything, then runs it; `args` are its: `--quick`.
pub(super) fn seed(args: &[String]) -> Result<()> {
    let mut steps = Steps::new();
    if std::thread::available_parallelism().map_or(1, usize::from) < 2 {
        bail!("the load needs a processor beside the gateways', and here is one");
    }
    steps.step("tools", "taskset, setpriv, nginx, redis-server", || {
        need::packages(&UTIL_LINUX)?;
        need::packages(&[NGINX, REDIS])
    })?;
    let binary = release_binary()?;
    let mut build = cargo([
        "build",
        "--release",
        "--locked",
        "--package",
        "ratekeeper-bench",
    ]);
    steps.command("load", build.args(["--example", "seed"]))?;
    let out = target().join("bench");
    let mut command = Command::new("taskset");
    command
        .args(["-c", LOAD_CORE])
        .arg(target().join("release/examples/seed"))
        .arg("--ratekeeper")
        .arg(&binary)
        .arg("--out")
        .arg(&out)
        .args(args);
    steps.command("seed", &mut command)?;
    eprintln!("the results are in {}", out.join("seed.md").display());
    steps.finish("bench seed");
    Ok(())
}
