//! Installs Express for the attack campaign with npm, below the target folder, from the lock file
//! of the campaign's application.

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
    let from = root().join("crates/ratekeeper-attack/apps/express");
    let folder = target().join("tools/express");
    let marker = folder.join("installed");
    let wanted = std::fs::read_to_string(from.join("package-lock.json"))?;
    if std::fs::read_to_string(&marker).is_ok_and(|installed| installed == wanted) {
        return Ok(());
    }
    eprintln!(
        "installing Express with npm into {}, once",
        folder.display()
    );
    install(&from, &folder).with_context(|| {
        format!(
            "Express cannot be installed; the attack campaign needs it, as {}",
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
