//! The commit that artefacts are made of.

use crate::steps::root;
use anyhow::{Context, Result, bail};
use std::process::Command;

/// Its time in seconds since 1970: that of every file of an artefact.
pub(crate) fn time() -> Result<String> {
    git(&["log", "-1", "--format=%ct"])
}

/// Its id.
pub(crate) fn id(name: &str) -> Result<String> {
    let id = git(&["rev-parse", "--verify", &format!("{name}^{{commit}}")]);
    id.with_context(|| format!("{name} is no commit"))
}

/// The output of git in the repository.
pub(crate) fn git(args: &[&str]) -> Result<String> {
    let output = Command::new("git").current_dir(root()).args(args).output();
    let output = output.context("cannot start git")?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        bail!("git {}: {}", args.join(" "), said.trim());
    }
    Ok(String::from_utf8(output.stdout)?.trim().to_owned())
}

/// The version of the workspace.
pub(crate) fn version() -> Result<String> {
    let manifest = std::fs::read_to_string(root().join("Cargo.toml"))?;
    let version = manifest
        .lines()
        .find_map(|line| line.strip_prefix("version = "));
    let version = version.context("Cargo.toml has no version")?;
    Ok(version.trim_matches('"').to_owned())
}
