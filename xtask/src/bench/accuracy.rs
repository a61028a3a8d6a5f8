//! `cargo xtask bench accuracy`: measures the accuracy of the algorithms, and checks their promised
//! bounds.

use std::path::PathBuf;

use super::{example, logs};
use crate::steps::Steps;
use anyhow::{Context, Result, bail};

/// Measures with callers of many kinds, an adversary, generated logs, the logs in this repository,
/// and those given as `--log FILE`.
pub(super) fn accuracy(args: &[String]) -> Result<()> {
    let mut is_quick = false;
    let mut paths: Vec<PathBuf> = logs()?;
    let mut args = args.iter();
    while let Some(arg) = args.next() {
        match arg.as_str() {
            "--quick" => is_quick = true,
            "--log" => paths.push(args.next().context("--log wants a file")?.into()),
            other => bail!("there is no {other:?}; there are `--quick` and `--log FILE`"),
        }
    }
    let mut command = example("accuracy");
    command.args(is_quick.then_some("--quick"));
    Steps::only("accuracy", command.args(paths))
}
