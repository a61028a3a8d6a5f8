//! `cargo xtask pgo`: records an execution profile of the static binary, by which the compiler optimises later builds of it
//! (profile-guided optimisation).
//!
//! The profile is part of the repository, so that two builds of a commit are alike. It names functions by their shape: what
//! has changed since it was recorded is compiled as without one.

use crate::need::{self, LLVM_PROFDATA, NGINX, REDIS, SETPRIV, TASKSET};
use crate::static_binary::{self, Arch};
use crate::steps::{Steps, cargo, root, target};
use anyhow::{Context, Result};
use std::hash::{DefaultHasher, Hasher};
use std::path::{Path, PathBuf};
use std::process::Command;

/// The recorded profile, below the root of the repository.
const PROFILE: &str = "deploy/ratekeeper.profdata";

/// The flag by which rustc optimises the static binary for the recorded profile; none for a processor of which there is none:
/// names of functions depend on the target.
///
/// Cargo compares flags and not the files in them: the number in the name has it build anew for another profile.
pub(crate) fn flag(arch: Arch) -> Result<Option<String>> {
    if arch != Arch::Amd64 {
        return Ok(None);
    }
    let recorded = root().join(PROFILE);
    let profile = std::fs::read(&recorded);
    let profile = profile.with_context(|| format!("cannot read {}", recorded.display()))?;
    let mut hasher = DefaultHasher::new();
    hasher.write(&profile);
    let folder = target().join("pgo/profile");
    need::remove(&folder)?;
    std::fs::create_dir_all(&folder)?;
    let copy = folder.join(format!("{:016x}.profdata", hasher.finish()));
    std::fs::write(&copy, profile)?;
    Ok(Some(format!("-Cprofile-use={}", copy.display())))
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
    let flag = Some("-Cprofile-generate".to_owned());
    let binary = static_binary::build_with(&mut steps, Arch::Amd64, &folder, flag)?;
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

/// The files that the binary wrote.
fn recorded(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    let entries = folder.read_dir();
    for entry in entries.context("the binary wrote no profile")? {
        files.push(entry?.path());
    }
    Ok(files)
}
