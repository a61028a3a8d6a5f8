//! Flags on how to read rules, shared by several commands.

use crate::settings::{self, Flags, row};
use anyhow::{Result, anyhow};
use clap::Args;
use ratekeeper_rules::{NodeRegion, Options};
use std::path::PathBuf;

/// Those of commands that read rules, and settings only if they are told some.
#[derive(Debug, Args)]
pub(crate) struct Reading {
    /// Merge files that name the same domain
    #[arg(long)]
    merge_domains: bool,
    /// Defaults for rules that do not set their own [default: ratekeeper]
    #[arg(long, value_name = "NAME", value_parser = ["ratekeeper", "envoy"])]
    profile: Option<String>,
    /// Base path of service levels
    #[arg(long, value_name = "PATH")]
    slas_base: Option<String>,
}

impl Reading {
    pub(crate) fn options(&self) -> Result<Options> {
        let mut options = Options::default();
        options.merge_domains = self.merge_domains;
        // Only the settings know it.
        options.region = NodeRegion::Unknown;
        options.profile = settings::profile(self.profile.as_deref().unwrap_or("ratekeeper"))?;
        options.path_folding = settings::path_folding(options.profile);
        options.slas_base = settings::slas_base(self.slas_base.as_deref().unwrap_or_default())
            .map_err(|error| anyhow!("--slas-base: {error}"))?;
        Ok(options)
    }

    /// Adds the flags given here to `flags`, for a command that was told its settings.
    pub(crate) fn add_to(&self, flags: Flags) -> Flags {
        said(
            flags,
            self.merge_domains,
            self.profile.as_deref(),
            self.slas_base.as_deref(),
        )
    }
}

/// `flags` with those that are given.
fn said(
    mut flags: Flags,
    merge_domains: bool,
    profile: Option<&str>,
    slas_base: Option<&str>,
) -> Flags {
    if merge_domains {
        flags = flags.with(&row::merge_domains, "true");
    }
    if let Some(profile) = profile {
        flags = flags.with(&row::profile, profile);
    }
    if let Some(base) = slas_base {
        flags = flags.with(&row::slas_base, base);
    }
    flags
}

/// Those of commands that read the settings as well, which hold where nothing is said here.
#[derive(Debug, Args)]
pub(crate) struct ReadingBySettings {
    /// Merge files that name the same domain
    #[arg(long)]
    merge_domains: bool,
    /// Defaults for rules that do not set their own [default: the `profile` setting]
    #[arg(long, value_name = "NAME", value_parser = ["ratekeeper", "envoy"])]
    profile: Option<String>,
    /// Base path of service levels [default: the `slas_base` setting]
    #[arg(long, value_name = "PATH")]
    slas_base: Option<String>,
    /// Tenants with a plan or limits of their own [default: the `tenants` setting]
    #[arg(long, value_name = "PATH")]
    tenants: Option<PathBuf>,
}

impl ReadingBySettings {
    /// Adds the flags given here to `flags`.
    pub(crate) fn add_to(&self, flags: Flags) -> Flags {
        let mut flags = said(
            flags,
            self.merge_domains,
            self.profile.as_deref(),
            self.slas_base.as_deref(),
        );
        if let Some(path) = &self.tenants {
            flags = flags.with(&row::tenants, path.display().to_string());
        }
        flags
    }
}
