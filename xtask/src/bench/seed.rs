//! `cargo xtask bench seed`: runs the performance test from the article that introduced service
//! levels.

use std::process::Command;

use super::grpc::{LOAD_CORE, UTIL_LINUX};
use super::measured_by;
use crate::need::{self, NGINX, REDIS};
use crate::steps::{Steps, target};
use anyhow::{Result, bail};

/// Builds everything, then runs it; `args` may be `--quick`.
pub(super) fn seed(args: &[String]) -> Result<()> {
    let mut steps = Steps::new();
    if std::thread::available_parallelism().map_or(1, usize::from) < 2 {
        bail!("the load needs a processor beside the gateways', and here is one");
    }
    steps.step("tools", "taskset, setpriv, nginx, redis-server", || {
        need::packages(&UTIL_LINUX)?;
        need::packages(&[NGINX, REDIS])
    })?;
    let (program, arguments) = measured_by("seed", &mut steps)?;
    let mut command = Command::new("taskset");
    command
        .args(["-c", LOAD_CORE])
        .arg(program)
        .args(arguments)
        .args(args);
    steps.command("seed", &mut command)?;
    let results = target().join("bench/seed.md");
    eprintln!("the results are in {}", results.display());
    steps.finish("bench seed");
    Ok(())
}
