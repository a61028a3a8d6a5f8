//! `cargo xtask book`: the manual in `docs/` as a web site.

use crate::need;
use crate::steps::{Steps, root, target};
use anyhow::Result;
use std::path::Path;
use std::process::Command;

/// Builds the book and says where it is.
pub(crate) fn book() -> Result<()> {
    let mut steps = Steps::new();
    steps.step("tools", "mdbook", || need::cargo_tool(&need::MDBOOK))?;
    let folder = target().join("book");
    steps.command("book", &mut mdbook(&folder))?;
    steps.finish("book");
    eprintln!("the book is {}", folder.join("index.html").display());
    Ok(())
}

/// The command that builds the book into `folder`.
pub(crate) fn mdbook(folder: &Path) -> Command {
    let mut command = Command::new("mdbook");
    command.current_dir(root()).args(["build", "--dest-dir"]);
    command.arg(folder);
    command
}
