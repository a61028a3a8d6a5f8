//! `cargo xtask bench dashboard`: the memory of the dashboard's page, and of the node that it watches.

use super::measured_by;
use crate::dashboard;
use crate::need::{self, CHROMIUM};
use crate::steps::{Steps, root, target};
use anyhow::Result;
use std::process::Command;

/// Builds everything, then runs it; `args` may be `--quick`.
pub(super) fn dashboard(args: &[String]) -> Result<()> {
    let mut steps = Steps::new();
    steps.step("tools", "chromium", || need::packages(&[CHROMIUM]))?;
    // The release binary embeds the page, and would do without it.
    dashboard::build(&mut steps)?;
    let (program, arguments) = measured_by("dashboard", &mut steps)?;
    let mut command = Command::new(program);
    let page = root().join("dashboard");
    command.args(arguments).arg("--page").arg(page).args(args);
    steps.command("dashboard", &mut command)?;
    let results = target().join("bench/dashboard.md");
    eprintln!("the results are in {}", results.display());
    steps.finish("bench dashboard");
    Ok(())
}
