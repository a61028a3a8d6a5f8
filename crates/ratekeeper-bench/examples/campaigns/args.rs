//! The arguments that all campaigns have, and the place of their results.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use crate::files::write;

/// The words behind the name of a campaign.
pub(crate) type Words = std::iter::Skip<std::env::Args>;

/// The arguments of a campaign.
#[derive(Debug)]
pub(crate) struct Args {
    /// The Ratekeeper binary.
    pub(crate) ratekeeper: PathBuf,
    /// The folder for results; without one they are only printed.
    pub(crate) out: Option<PathBuf>,
    /// True to leave out what takes minutes.
    pub(crate) is_quick: bool,
    paths: BTreeMap<&'static str, PathBuf>,
    flags: BTreeSet<&'static str>,
}

impl Args {
    /// Reads the arguments; `paths` are those that only this campaign has, each with a path, and `flags` those without a
    /// value.
    pub(crate) fn of(
        mut args: impl Iterator<Item = String>,
        paths: &[&'static str],
        flags: &[&'static str],
    ) -> Result<Self> {
        let mut read = Self {
            ratekeeper: PathBuf::new(),
            out: None,
            is_quick: false,
            paths: BTreeMap::new(),
            flags: BTreeSet::new(),
        };
        while let Some(arg) = args.next() {
            let mut value = || args.next().with_context(|| format!("{arg} needs a value"));
            if let Some(flag) = flags.iter().find(|flag| **flag == arg) {
                read.flags.insert(flag);
                continue;
            }
            match (arg.as_str(), paths.iter().find(|path| **path == arg)) {
                ("--ratekeeper", _) => read.ratekeeper = value()?.into(),
                ("--out", _) => read.out = Some(value()?.into()),
                ("--quick", _) => read.is_quick = true,
                (_, Some(path)) => _ = read.paths.insert(path, value()?.into()),
                (_, None) => bail!("there is no argument {arg:?}; there is --quick"),
            }
        }
        let binary = &read.ratekeeper;
        if !binary.is_file() {
            bail!("--ratekeeper: there is no binary {:?}", binary.display());
        }
        Ok(read)
    }

    /// The path of one of the arguments that only this campaign has, if it was given.
    pub(crate) fn path(&self, name: &str) -> Option<&Path> {
        self.paths.get(name).map(PathBuf::as_path)
    }

    /// True if a flag of this campaign was given.
    pub(crate) fn has(&self, flag: &str) -> bool {
        self.flags.contains(flag)
    }

    /// Prints a table, and writes it to `NAME.md` among the results.
    pub(crate) fn tell(&self, name: &str, table: &str) -> Result<()> {
        print!("{table}");
        match &self.out {
            Some(out) => write(out, &format!("{name}.md"), table),
            None => Ok(()),
        }
    }
}
