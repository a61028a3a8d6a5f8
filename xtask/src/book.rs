//! `cargo xtask book`: the manual in `docs/` as a web site.

use crate::need;
use crate::steps::{Steps, root, target};
use anyhow::Result;
use std::process::Command;

/// Builds the book and says where it is.
pub(crate) fn book() -> Result<()> {
    let mut steps = Steps::new();
    steps.step("tools", "mdbook", || need::cargo_tool(&need::MDBOOK))?;
    let folder = target().join("book");
    let mut command = Command::new("mdbook");
    command
        .current_dir(root())
        .args(["build", "--dest-dir"])
        .arg(&folder);
    steps.command("book", &mut command)?;
    steps.finish("book");
    eprintln!("the book is {}", folder.join("index.html").display());
    Ok(())
}
