//! Builds the dashboard, where Node is installed.

use crate::steps::{Steps, root, succeed};
use anyhow::{Result, bail};
use std::path::Path;
use std::process::Command;
use std::time::SystemTime;

/// The oldest Node that vite runs on.
const NODE_MIN: (u32, u32) = (20, 19);

/// The file of the build that is looked at to see how old it is.
const BUILT: &str = "dist/dashboard.js";

/// Builds the dashboard if its sources are newer than the last build. Without Node the binary says how to get the page,
/// and one that cannot be built does not keep the rest from being built.
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
    check_node("node", "npm")?;
    steps.step("dashboard", "npm ci && npm run build", || {
        // Takes what the lock file names, checks it, and runs no script of a package.
        let quiet = ["ci", "--ignore-scripts", "--no-audit", "--no-fund"];
        succeed(Command::new("npm").args(quiet).current_dir(&folder))?;
        let build = ["run", "--silent", "build"];
        succeed(Command::new("npm").args(build).current_dir(&folder))
    })
}

/// Requires both programs, Node in a version that vite runs on.
fn check_node(node: &str, npm: &str) -> Result<()> {
    let (major, minor) = NODE_MIN;
    let version_of = |program: &str| {
        let said = Command::new(program).arg("--version").output().ok()?;
        let said = String::from_utf8_lossy(&said.stdout);
        Some(said.lines().next().unwrap_or_default().to_owned())
    };
    let (Some(found), Some(_)) = (version_of(node), version_of(npm)) else {
        bail!("it needs Node {major}.{minor} or newer, and npm");
    };
    if version(&found).is_none_or(|found| found < NODE_MIN) {
        bail!("it needs Node {major}.{minor} or newer; this is {found}");
    }
    Ok(())
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

    #[test]
    fn without_node_or_npm_one_line_says_what_is_missing() {
        for (node, npm, said) in [
            ("no-node", "true", "it needs Node 20.19 or newer, and npm"),
            ("echo", "no-npm", "it needs Node 20.19 or newer, and npm"),
            ("echo", "true", "it needs Node 20.19 or newer; this is "),
        ] {
            let error = check_node(node, npm).expect_err("something is missing");
            let line = format!("{error:#}");
            assert!(
                line.starts_with(said) && line.lines().count() == 1,
                "{line}"
            );
        }
    }
}
