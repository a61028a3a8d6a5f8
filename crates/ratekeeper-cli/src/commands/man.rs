//! `ratekeeper man FOLDER`.

use crate::cli::Cli;
use anyhow::{Context, Result};
use clap::CommandFactory;
use std::path::Path;
use std::process::ExitCode;

pub(crate) fn run(folder: &Path) -> Result<ExitCode> {
    let written = std::fs::create_dir_all(folder)
        .and_then(|()| clap_mangen::generate_to(Cli::command(), folder));
    written.with_context(|| format!("cannot write the pages to {}", folder.display()))?;
    Ok(ExitCode::SUCCESS)
}
