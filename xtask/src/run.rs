//! `cargo xtask build` and `cargo xtask run`: the release binary.

use crate::steps::{Steps, cargo, root, target};
use anyhow::{Context, Result};
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
    let mut command = Command::new(&binary);
    command.current_dir(&root).args(args);
    Err(become_it(&mut command)).with_context(|| format!("cannot start {}", binary.display()))
}

/// Puts the command in this process's place, so that Ctrl-C and whoever waits for us get to it. Comes back only with
/// the reason why that failed.
#[cfg(unix)]
fn become_it(command: &mut Command) -> std::io::Error {
    std::os::unix::process::CommandExt::exec(command)
}

#[cfg(not(unix))]
fn become_it(command: &mut Command) -> std::io::Error {
    match command.status() {
        Ok(status) => std::process::exit(status.code().unwrap_or(1)),
        Err(error) => error,
    }
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
