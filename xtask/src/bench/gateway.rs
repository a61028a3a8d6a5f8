//! `cargo xtask bench gateway`: the gateway beside itself without limits, and beside NGINX.

use std::process::Command;

use super::grpc::UTIL_LINUX;
use crate::need::{self, H2LOAD, NGINX};
use crate::run::release_binary;
use crate::steps::{Steps, cargo, target};
use anyhow::{Result, bail};

/// Builds everything, then runs the comparison; `args` are its: `--quick`.
pub(super) fn gateway(args: &[String]) -> Result<()> {
    let mut steps = Steps::new();
    if std::thread::available_parallelism().map_or(1, usize::from) < 2 {
        bail!("the load needs a processor beside the gateway's, and here is one");
    }
    steps.step("tools", "taskset, setpriv, nginx, h2load", || {
        need::packages(&UTIL_LINUX)?;
        need::packages(&[NGINX, H2LOAD])
    })?;
    let binary = release_binary()?;
    let mut build = cargo([
        "build",
        "--release",
        "--locked",
        "--package",
        "ratekeeper-bench",
    ]);
    steps.command("load", build.args(["--example", "gateway"]))?;
    let out = target().join("bench");
    let mut command = Command::new(target().join("release/examples/gateway"));
    command
        .arg("--ratekeeper")
        .arg(&binary)
        .arg("--out")
        .arg(&out)
        .args(args);
    steps.command("compare", &mut command)?;
    eprintln!("the results are in {}", out.join("gateway.md").display());
    steps.finish("bench gateway");
    Ok(())
}
