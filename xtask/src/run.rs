//! `cargo xtask build` and `cargo xtask run`: the release binary.

use crate::steps::{Steps, cargo, root, target};
use anyhow::{Context, Result, bail};
use std::path::PathBuf;
use std::process::Command;

/// Builds the release binary and says where it is.
pub(crate) fn build() -> Result<()> {
    let binary = release_binary()?;
    eprintln!("the binary is {}", binary.display());
    Ok(())
}

/// Builds the release binary and runs it at the root of the repository; bare, it serves `config/` there.
pub(crate) fn run(args: &[String]) -> Result<()> {
    let binary = release_binary()?;
    let root = root();
    // The shorter name is what the binary prints in the commands to try.
    let binary = binary
        .strip_prefix(&root)
        .map_or(binary.clone(), |path| PathBuf::from(".").join(path));
    eprintln!();
    // Ctrl-C reaches the child too, since it is in this process's group; its exit is waited for, so that it drains.
    let status = Command::new(&binary)
        .current_dir(&root)
        .args(args)
        .status()
        .with_context(|| format!("cannot start {}", binary.display()))?;
    if !status.success() {
        bail!("ratekeeper ended with {status}");
    }
    Ok(())
}

/// Builds the release binary and answers where it is.
pub(crate) fn release_binary() -> Result<PathBuf> {
    let mut steps = Steps::new();
    steps.command(
        "build",
        &mut cargo([
            "build",
            "--release",
            "--locked",
            "--package",
            "ratekeeper-cli",
        ]),
    )?;
    let name = format!("ratekeeper{}", std::env::consts::EXE_SUFFIX);
    Ok(target().join("release").join(name))
}
