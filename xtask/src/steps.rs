//! Named steps with their times.

use anyhow::{Context, Result, bail};
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

/// The steps of one verb, run in order; the first that fails ends the verb.
pub(crate) struct Steps {
    done: Vec<(&'static str, Duration)>,
}

impl Steps {
    pub(crate) fn new() -> Steps {
        Steps { done: Vec::new() }
    }

    /// Runs a command as the only step of a verb.
    pub(crate) fn only(verb: &'static str, command: &mut Command) -> Result<()> {
        let mut steps = Steps::new();
        steps.command(verb, command)?;
        steps.finish(verb);
        Ok(())
    }

    /// Runs a command as the step `name`; its output is passed through.
    pub(crate) fn command(&mut self, name: &'static str, command: &mut Command) -> Result<()> {
        self.step(name, &shown(command), || succeed(command))
    }

    /// Runs `work` as the step `name`; `what` describes it.
    pub(crate) fn step<T>(
        &mut self,
        name: &'static str,
        what: &str,
        work: impl FnOnce() -> Result<T>,
    ) -> Result<T> {
        eprintln!("\n==> {name}: {what}");
        let start = Instant::now();
        let result = work();
        let took = start.elapsed();
        match &result {
            Ok(_) => eprintln!("==> {name}: ok in {}", seconds(took)),
            Err(_) => eprintln!("==> {name}: FAILED after {}", seconds(took)),
        }
        self.done.push((name, took));
        result.with_context(|| format!("the step `{name}` failed: {what}"))
    }

    /// Prints the steps and their times.
    pub(crate) fn finish(self, verb: &str) {
        let total: Duration = self.done.iter().map(|(_, took)| *took).sum();
        eprintln!("\n{verb}: all of it passed in {}", seconds(total));
        for (name, took) in self.done {
            eprintln!("  {:>8}  {name}", seconds(took));
        }
    }
}

/// A cargo command at the root of the workspace.
///
/// Variables that `cargo run` sets for the package xtask are removed: they would reach the build
/// scripts of everything built below.
pub(crate) fn cargo<I, A>(args: I) -> Command
where
    I: IntoIterator<Item = A>,
    A: AsRef<OsStr>,
{
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    for (name, _) in std::env::vars_os() {
        let name_text = name.to_string_lossy();
        if name_text.starts_with("CARGO_PKG_") || name_text.starts_with("CARGO_MANIFEST_") {
            command.env_remove(&name);
        }
    }
    command.current_dir(root()).args(args);
    command
}

/// The root of the workspace.
pub(crate) fn root() -> PathBuf {
    let xtask = Path::new(env!("CARGO_MANIFEST_DIR"));
    xtask.parent().unwrap_or(xtask).to_path_buf()
}

/// Cargo's target folder.
pub(crate) fn target() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), PathBuf::from)
}

/// Runs a command to its end; any failure is an error.
pub(crate) fn succeed(command: &mut Command) -> Result<()> {
    let status = command
        .status()
        .with_context(|| format!("cannot start {}", shown(command)))?;
    if !status.success() {
        bail!("it ended with {status}");
    }
    Ok(())
}

/// The command as one would type it.
pub(crate) fn shown(command: &Command) -> String {
    let program = Path::new(command.get_program())
        .file_name()
        .unwrap_or_default()
        .to_string_lossy();
    let mut text = program.into_owned();
    for arg in command.get_args() {
        text.push(' ');
        text.push_str(&arg.to_string_lossy());
    }
    text
}

/// A duration in seconds, as one would say it.
pub(crate) fn seconds(took: Duration) -> String {
    format!("{:.1} s", took.as_secs_f64())
}
