//! `cargo xtask compat envoy-gateway`: the binary as the rate limit service of a real Envoy Gateway, with a real Envoy, by
//! the policy in `examples/envoy-gateway`.
//!
//! The script beside this file does it, in namespaces of its own: Envoy Gateway's paths and ports are fixed, and nothing of
//! that is left on the host.

use crate::need;
use crate::run::release_binary;
use crate::steps::{Steps, root, target};
use anyhow::{Result, bail};
use std::path::PathBuf;
use std::process::Command;

/// Runs it; `args` may be `--ratekeeper PATH`, a binary in place of a release build.
pub(crate) fn envoy_gateway(args: &[String]) -> Result<()> {
    let mut steps = Steps::new();
    let ratekeeper = match args {
        [] => release_binary()?,
        [flag, path] if flag == "--ratekeeper" => PathBuf::from(path).canonicalize()?,
        _ => bail!("write `compat envoy-gateway`, or `compat envoy-gateway --ratekeeper PATH`"),
    };
    let tools = steps.step("tools", "Envoy Gateway, Envoy and Redis", || {
        need::packages(&[need::REDIS, need::IPTABLES])?;
        need::envoy()?;
        need::go_tools(&need::FOR_ENVOY_GATEWAY)
    })?;
    let work = target().join("envoy-gateway");
    std::fs::create_dir_all(&work)?;
    let mut command = Command::new("unshare");
    command
        .args([
            "--net",
            "--mount",
            "--pid",
            "--fork",
            "--mount-proc",
            "bash",
        ])
        .arg(root().join("xtask/src/envoy_gateway/run.sh"))
        .env("WORK", work.canonicalize()?)
        .env(
            "EXAMPLE",
            root().join("examples/envoy-gateway").canonicalize()?,
        )
        .env("RATEKEEPER", ratekeeper)
        .env("ENVOY", target().join("tools/envoy/envoy").canonicalize()?);
    for (_, program) in tools {
        command.env("ENVOY_GATEWAY", program.canonicalize()?);
    }
    steps.command("run", &mut command)?;
    steps.finish("compat envoy-gateway");
    Ok(())
}
