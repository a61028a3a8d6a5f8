//! Rules as the commands read them.

use anyhow::{Context, Result};
use ratekeeper_rules::{Diagnostics, Loaded, Options, ReadError, ReadOptions, Unreadable};
use std::collections::HashSet;
use std::path::{Path, PathBuf};

/// The sources that were read, and the errors of files that could not be.
pub(crate) type Read = Unreadable;

/// Reads files and folders.
///
/// # Errors
/// One of them does not exist, or has no rules files in it.
pub(crate) fn read_all(paths: &[PathBuf], options: ReadOptions) -> Result<Read> {
    let mut all = Read::default();
    for path in paths {
        add(&mut all, read(path, options)?);
    }
    Ok(all)
}

/// Adds the files of `more` that are not among `all` yet, however they are spelled: tenants may lie among the rules.
pub(crate) fn add(all: &mut Read, more: Read) {
    all.errors.extend(more.errors);
    let place = |name: &str| std::fs::canonicalize(name).unwrap_or_else(|_| name.into());
    let known = all.sources.iter().map(|known| place(&known.name));
    let known: HashSet<PathBuf> = known.collect();
    let new = more.sources.into_iter();
    let new = new.filter(|source| !known.contains(&place(&source.name)));
    all.sources.extend(new);
}

pub(crate) fn read(path: &Path, options: ReadOptions) -> Result<Read> {
    let sources = match ratekeeper_rules::read(path, &options) {
        Ok(sources) => sources,
        Err(ReadError::Unreadable(read)) => return Ok(read),
        Err(error) => return Err(error.into()),
    };
    if sources.is_empty() {
        let wanted = if options.every_file {
            "file"
        } else {
            "*.yaml or *.yml file"
        };
        anyhow::bail!("there is no {wanted} in {}", path.display());
    }
    Ok(Read {
        errors: Vec::new(),
        sources,
    })
}

/// Compiles the sources that were read.
///
/// # Errors
/// All errors in them.
pub(crate) fn compile(read: Read, options: &Options) -> Result<Loaded, Diagnostics> {
    if read.errors.is_empty() {
        ratekeeper_rules::load(&read.sources, options)
    } else {
        Err(read.all(options))
    }
}

/// Reads and compiles the rules at `path` and the tenants at `tenants`, for a command that goes on with them.
///
/// # Errors
/// All errors in them.
pub(crate) fn load(
    path: &Path,
    tenants: Option<&Path>,
    files: ReadOptions,
    options: &Options,
) -> Result<Loaded> {
    let mut all = read(path, files)?;
    if let Some(tenants) = tenants {
        add(&mut all, read(tenants, ReadOptions::default())?);
    }
    compile(all, options).with_context(|| format!("the rules in {} are refused", path.display()))
}
