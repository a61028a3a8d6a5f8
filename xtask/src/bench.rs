//! `cargo xtask bench core`: what a decision costs.

use crate::steps::{Steps, cargo};
use anyhow::{Result, bail};

pub(crate) fn bench(args: &[String]) -> Result<()> {
    let Some((what, rest)) = args.split_first() else {
        bail!("say which benchmark: `cargo xtask bench core`");
    };
    if what != "core" {
        bail!("there is no benchmark {what:?}; there is `core`");
    }
    let mut steps = Steps::new();
    let mut command = cargo([
        "bench",
        "--locked",
        "--package",
        "ratekeeper-bench",
        "--bench",
        "core",
        "--",
    ]);
    command.args(rest);
    steps.command("core", &mut command)?;
    steps.finish("bench");
    Ok(())
}
