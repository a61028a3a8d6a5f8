//! Installs packages with npm, below the target folder, from a lock file: Express for the attack campaign, and what the
//! clients are checked and compared with.

use crate::steps::{root, succeed, target};
use anyhow::{Context, Result};
use std::path::Path;
use std::process::Command;

/// The files that determine what is installed: packages, versions and checksums.
const FILES: [&str; 2] = ["package.json", "package-lock.json"];

/// Installs Express in the versions of the lock file.
///
/// # Errors
/// It cannot be fetched.
pub(crate) fn express() -> Result<()> {
    let from = "crates/ratekeeper-attack/apps/express";
    locked("Express for the attack campaign", from, "express")
}

/// Installs Node, TypeScript and what the TypeScript client is compared with, in the versions of the lock file.
///
/// # Errors
/// They cannot be fetched.
pub(crate) fn clients_node() -> Result<()> {
    locked(
        "Node and TypeScript for the clients",
        "clients/tools",
        "clients-node",
    )
}

/// Installs what the lock file in the folder `from` names, as the tool `tool`, unless it is there.
fn locked(what: &str, from: &str, tool: &str) -> Result<()> {
    let from = root().join(from);
    let folder = target().join("tools").join(tool);
    let marker = folder.join("installed");
    let wanted = std::fs::read_to_string(from.join("package-lock.json"))?;
    if std::fs::read_to_string(&marker).is_ok_and(|installed| installed == wanted) {
        return Ok(());
    }
    eprintln!("installing {what} with npm into {}, once", folder.display());
    install(&from, &folder).with_context(|| {
        format!(
            "{what}: they cannot be installed; tests need them, as {}",
            folder.join("node_modules").display()
        )
    })?;
    // Last, so that an interrupted run leaves nothing that looks done.
    std::fs::write(&marker, wanted)?;
    Ok(())
}

fn install(from: &Path, folder: &Path) -> Result<()> {
    std::fs::create_dir_all(folder)?;
    for file in FILES {
        std::fs::copy(from.join(file), folder.join(file))?;
    }
    // `ci` takes what the lock file names, checks it, and runs no script of a package.
    let quiet = ["ci", "--ignore-scripts", "--no-audit", "--no-fund"];
    succeed(Command::new("npm").args(quiet).current_dir(folder))
}
