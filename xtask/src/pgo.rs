//! `cargo xtask pgo`: records an execution profile of the binary, by which the compiler optimises later builds of it
//! (profile-guided optimisation).
//!
//! The profile is part of the repository, so that two builds of a commit are alike. It names functions by their shape: what
//! has changed since it was recorded is compiled as without one.

use crate::need::{self, LLVM_PROFDATA, NGINX, REDIS, SETPRIV, TASKSET};
use crate::steps::{Steps, cargo, root, target};
use anyhow::{Context, Result};
use std::hash::{DefaultHasher, Hasher};
use std::path::{Path, PathBuf};
use std::process::Command;

/// The recorded profile, below the root of the repository.
const PROFILE: &str = "deploy/ratekeeper.profdata";

/// The flags by which rustc optimises for the recorded profile.
///
/// Cargo compares flags and not the files in them: the number, which nothing reads, has it build anew for another profile.
pub(crate) fn flags() -> Result<String> {
    let path = root().join(PROFILE);
    let profile = std::fs::read(&path);
    let profile = profile.with_context(|| format!("cannot read {}", path.display()))?;
    let mut hasher = DefaultHasher::new();
    hasher.write(&profile);
    let number = hasher.finish();
    let path = path.display();
    Ok(format!(
        "-Cprofile-use={path} --cfg=execution_profile=\"{number:016x}\""
    ))
}

/// Builds a binary that counts how often its code runs, puts load on it, and writes the profile.
pub(crate) fn record() -> Result<()> {
    let mut steps = Steps::new();
    let tools = [LLVM_PROFDATA, NGINX, REDIS, SETPRIV, TASKSET];
    steps.step("tools", "llvm-profdata, NGINX, redis-server", || {
        need::packages(&tools)
    })?;
    let folder = target().join("pgo");
    let raw = folder.join("raw");
    need::remove(&raw)?;
    let binary = instrumented(&mut steps, &host()?, &folder)?;
    let mut load = cargo(["run", "--release", "--locked", "--package"]);
    load.args(["ratekeeper-bench", "--example", "campaigns", "--", "pgo"]);
    load.arg("--ratekeeper").arg(binary);
    load.arg("--profiles").arg(&raw);
    steps.command("load", &mut load)?;
    let mut command = Command::new(LLVM_PROFDATA.program);
    command.args(["merge", "--sparse", "--output"]);
    command.arg(root().join(PROFILE)).args(recorded(&raw)?);
    steps.command("merge", &mut command)?;
    steps.finish("pgo");
    Ok(())
}

/// Builds the binary that counts, below `folder`.
fn instrumented(steps: &mut Steps, host: &str, folder: &Path) -> Result<PathBuf> {
    let mut build = cargo(["build", "--release", "--locked", "--package"]);
    // With a target, build scripts and macros are compiled without these flags.
    build.args(["ratekeeper-cli", "--target", host, "--target-dir"]);
    build.arg(folder);
    build.env("RUSTFLAGS", "-Cprofile-generate");
    steps.command("build", &mut build)?;
    Ok(folder.join(host).join("release/ratekeeper"))
}

/// The files that the binary wrote.
fn recorded(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    let entries = folder.read_dir();
    for entry in entries.context("the binary wrote no profile")? {
        files.push(entry?.path());
    }
    Ok(files)
}

/// The target for which the compiler builds without being told one.
fn host() -> Result<String> {
    let mut command = Command::new("rustc");
    command.args(["--print", "host-tuple"]).current_dir(root());
    let output = command.output().context("rustc cannot be started")?;
    Ok(String::from_utf8(output.stdout)?.trim().to_owned())
}
