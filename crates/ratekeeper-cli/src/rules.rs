//! Rules as the commands read them.

use anyhow::{Context, Result};
use ratekeeper_rules::{Loaded, Options, ReadOptions, Source};
use std::path::{Path, PathBuf};

/// Reads files and folders.
///
/// # Errors
/// If one of them cannot be read.
pub(crate) fn read_all(paths: &[PathBuf], every_file: bool) -> Result<Vec<Source>> {
    let mut sources = Vec::new();
    for path in paths {
        sources.extend(read(path, every_file)?);
    }
    Ok(sources)
}

fn read(path: &Path, every_file: bool) -> Result<Vec<Source>> {
    let options = ReadOptions { every_file };
    let sources = ratekeeper_rules::read(path, &options)?;
    if sources.is_empty() {
        let wanted = if every_file {
            "file"
        } else {
            "*.yaml or *.yml file"
        };
        anyhow::bail!("there is no {wanted} in {}", path.display());
    }
    Ok(sources)
}

/// Reads and compiles the rules at `path`, for a command that goes on with them.
///
/// # Errors
/// All that is wrong with them.
pub(crate) fn load(path: &Path, every_file: bool, options: &Options) -> Result<Loaded> {
    let sources = read(path, every_file)?;
    ratekeeper_rules::load(&sources, options)
        .with_context(|| format!("the rules in {} are refused:\n", path.display()))
}
