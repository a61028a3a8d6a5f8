//! `cargo xtask bench gateway`: compares the gateway with itself without limits, and with NGINX.

use std::process::Command;

use super::{grpc::UTIL_LINUX, measured_by};
use crate::need::{self, H2LOAD, NGINX};
use crate::steps::{Steps, target};
use anyhow::{Result, bail};

/// Builds everything, then runs the comparison; `args` may be `--quick`.
pub(super) fn gateway(args: &[String]) -> Result<()> {
    let mut steps = Steps::new();
    if std::thread::available_parallelism().map_or(1, usize::from) < 2 {
        bail!("the load needs a processor beside the gateway's, and here is one");
    }
    steps.step("tools", "taskset, setpriv, nginx, h2load", || {
        need::packages(&UTIL_LINUX)?;
        need::packages(&[NGINX, H2LOAD])
    })?;
    let (program, arguments) = measured_by("gateway", &mut steps)?;
    let mut command = Command::new(program);
    command.args(arguments).args(args);
    steps.command("compare", &mut command)?;
    let results = target().join("bench/gateway.md");
    eprintln!("the results are in {}", results.display());
    steps.finish("bench gateway");
    Ok(())
}
