//! `cargo xtask crates`: the published crates, packaged and built as crates.io would have them.

use crate::steps::{Steps, cargo, target};
use anyhow::Result;

/// Packages each crate that is published, and builds it from its package alone with every feature; nothing is uploaded.
pub(crate) fn crates() -> Result<()> {
    let mut steps = Steps::new();
    let mut publish = cargo(["publish", "--workspace", "--dry-run", "--locked"]);
    // What is not committed would be packaged too; git tells what it is.
    publish.args(["--allow-dirty", "--all-features"]);
    steps.command("crates", &mut publish)?;
    steps.finish("crates");
    eprintln!("the packages are in {}", target().join("package").display());
    Ok(())
}
