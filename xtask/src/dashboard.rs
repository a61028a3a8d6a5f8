//! Builds the dashboard, where Node is installed.

use crate::steps::{Steps, root, succeed};
use anyhow::{Context, Result, bail};
use std::path::Path;
use std::process::Command;
use std::time::SystemTime;

/// The oldest Node that vite runs on.
const NODE_MIN: (u32, u32) = (20, 19);

/// The file of the build that is looked at to see how old it is.
const BUILT: &str = "dist/dashboard.js";

/// Builds the dashboard if its sources are newer than the last build. Without Node the binary says how to get the page,
/// and one that cannot be built keeps nobody from the rest.
pub(crate) fn build_if_possible(steps: &mut Steps) {
    match build(steps) {
        Ok(()) => {}
        Err(error) => eprintln!("the dashboard is left out: {error:#}"),
    }
}

/// Builds the dashboard if its sources are newer than the last build.
///
/// # Errors
/// There is no Node, or the build fails.
pub(crate) fn build(steps: &mut Steps) -> Result<()> {
    let folder = root().join("dashboard");
    if is_fresh(&folder)? {
        return Ok(());
    }
    check_node()?;
    steps.step("dashboard", "npm ci && npm run build", || {
        // Takes what the lock file names, checks it, and runs no script of a package.
        let quiet = ["ci", "--ignore-scripts", "--no-audit", "--no-fund"];
        succeed(Command::new("npm").args(quiet).current_dir(&folder))?;
        let build = ["run", "--silent", "build"];
        succeed(Command::new("npm").args(build).current_dir(&folder))
    })
}

fn check_node() -> Result<()> {
    let (major, minor) = NODE_MIN;
    let wanted = format!("install Node {major}.{minor} or newer, and npm");
    let said = Command::new("node").arg("--version").output();
    let said = said.with_context(|| wanted.clone())?.stdout;
    let said = String::from_utf8_lossy(&said);
    match version(said.trim()) {
        Some(found) if found >= NODE_MIN => Ok(()),
        _ => bail!("{wanted}; this is {}", said.trim()),
    }
}

/// Parses `v20.20.2`.
fn version(text: &str) -> Option<(u32, u32)> {
    let mut parts = text.strip_prefix('v')?.split('.');
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

/// Returns true if no source is newer than what was built from it.
fn is_fresh(folder: &Path) -> Result<bool> {
    let time = |path: &Path| path.metadata().and_then(|it| it.modified());
    let Ok(built) = time(&folder.join(BUILT)) else {
        return Ok(false);
    };
    // Tests use packages that the page itself does not need.
    if !folder.join("node_modules").is_dir() {
        return Ok(false);
    }
    let mut newest = SystemTime::UNIX_EPOCH;
    for folder in [folder.to_owned(), folder.join("src"), folder.join("public")] {
        for entry in std::fs::read_dir(&folder)? {
            let path = entry?.path();
            if path.is_file() {
                newest = newest.max(time(&path)?);
            }
        }
    }
    Ok(newest <= built)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_compared_as_numbers() {
        assert!(version("v20.19.0") >= Some(NODE_MIN));
        assert!(version("v100.0.0") >= Some(NODE_MIN));
        assert!(version("v20.9.9") < Some(NODE_MIN));
        assert_eq!(version("20.19.0"), None);
    }
}
