//! `cargo xtask upgrade`: nodes of one commit are replaced by nodes of another, under load.

use crate::commit;
use crate::need;
use crate::steps::{Steps, cargo, target};
use anyhow::{Result, bail};
use std::path::{Path, PathBuf};

/// Builds both commits of `args`, or takes two binaries, and replaces nodes of the first by nodes of the second and back.
pub(crate) fn upgrade(args: &[String]) -> Result<()> {
    let (flags, words): (Vec<&str>, Vec<&str>) = args
        .iter()
        .map(String::as_str)
        .partition(|arg| arg.starts_with("--"));
    let mut steps = Steps::new();
    steps.step("tools", "redis-server, PostgreSQL", || {
        need::packages(&[need::REDIS, need::POSTGRESQL])
    })?;
    let [older, newer] = match (flags.as_slice(), words.as_slice()) {
        ([] | ["--quick"], [older]) => [build(&mut steps, older)?, build(&mut steps, "HEAD")?],
        ([] | ["--quick"], [older, newer]) => {
            [build(&mut steps, older)?, build(&mut steps, newer)?]
        }
        (["--binaries"] | ["--binaries", "--quick"], [older, newer]) => {
            [PathBuf::from(older), PathBuf::from(newer)]
        }
        _ => bail!(
            "write `upgrade OLD [NEW] [--quick]`, two commits, or `upgrade --binaries OLD NEW [--quick]`"
        ),
    };
    let mut command = cargo(["run", "--locked", "--package", "ratekeeper-chaos", "--"]);
    command.arg("--ratekeeper").arg(older.canonicalize()?);
    command.arg("--upgrade-to").arg(newer.canonicalize()?);
    command.args(flags.iter().filter(|flag| **flag == "--quick"));
    steps.command("upgrade", &mut command)?;
    steps.finish("upgrade");
    Ok(())
}

/// Builds the release binary of a commit, in a work tree of its own, unless it is there.
fn build(steps: &mut Steps, name: &str) -> Result<PathBuf> {
    let folder = target().join("upgrade");
    std::fs::create_dir_all(&folder)?;
    let folder = folder.canonicalize()?;
    let id = commit::id(name)?;
    let binary = folder.join(&id).join("ratekeeper");
    if binary.is_file() {
        return Ok(binary);
    }
    let tree = folder.join("tree");
    steps.step("work tree", name, || check_out(&tree, &id))?;
    let mut command = cargo(["build", "--release", "--locked", "--package"]);
    command.args(["ratekeeper-cli", "--target-dir"]);
    // One folder for both, so that the crates of others are built once.
    command.arg(folder.join("build")).current_dir(&tree);
    steps.command("build", &mut command)?;
    std::fs::create_dir_all(folder.join(&id))?;
    std::fs::copy(folder.join("build/release/ratekeeper"), &binary)?;
    Ok(binary)
}

fn check_out(tree: &Path, id: &str) -> Result<()> {
    let path = tree.display().to_string();
    if tree.exists() {
        commit::git(&["worktree", "remove", "--force", &path])?;
    }
    commit::git(&["worktree", "add", "--quiet", "--detach", &path, id])?;
    Ok(())
}
