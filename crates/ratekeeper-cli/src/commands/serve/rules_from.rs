//! The rules of a start, and the source that goes on to deliver them.

use super::last_good;
use crate::settings::{OnBrokenRules, Settings};
use anyhow::{Context as _, Result, anyhow};
use ratekeeper_rules::{Loaded, RuleSet};
use ratekeeper_server::{
    Families, FeedConfig, Monitored, OnBadText, RulesFeed, RulesLoader, RulesSource, Server,
};
use ratekeeper_sources::{SourceStatus, XdsSource};
use std::fmt;
use std::path::Path;
use tokio::task::AbortHandle;
use tracing::warn;

/// The rules that a server starts with.
pub(super) struct StartRules {
    pub(super) loader: RulesLoader,
    pub(super) rules: RuleSet,
    /// Their place, for people.
    pub(super) place: String,
    /// The source and its feed, where they do not come from files.
    source: Option<(XdsSource, RulesFeed)>,
}

impl StartRules {
    /// # Errors
    /// There are no rules, or those of the files are refused.
    pub(super) fn new(settings: &Settings) -> Result<Self> {
        match &settings.rules.xds {
            Some(config) => Self::sent(settings, config),
            None => {
                let path = path(settings)?;
                let mut loader = of_files(settings, path);
                let rules = load(&mut loader, settings, path)?.rules;
                Ok(Self {
                    loader,
                    rules,
                    place: path.display().to_string(),
                    source: None,
                })
            }
        }
    }

    /// Of a control plane: the last good ones, or none until it answers.
    fn sent(settings: &Settings, config: &ratekeeper_sources::XdsConfig) -> Result<Self> {
        let source = XdsSource::new(config.clone()).context("--rules")?;
        let options = &settings.rules.options;
        let (loader, feed) = RulesLoader::fed(FeedConfig {
            name: config.name(),
            options: options.clone(),
            on_bad_text: OnBadText::TakeOthers,
        });
        let mut loader = keeping_last_good(loader, settings);
        let is_wanted = *settings.values.on_broken_rules == OnBrokenRules::LastGood;
        let rules = match is_wanted.then(|| loader.load_last_good()).flatten() {
            Some(loaded) => loaded.rules,
            None => ratekeeper_rules::load(&[], options)?.rules,
        };
        if settings.values.data_dir.is_none() {
            warn!(
                "without --data-dir no copy of the rules is kept: a start while {} is away has none",
                config.name()
            );
        }
        Ok(Self {
            loader,
            rules,
            place: config.name(),
            source: Some((source, feed)),
        })
    }

    /// Takes the source out, to be started once the server is bound.
    pub(super) fn take_source(&mut self) -> Option<(XdsSource, RulesFeed)> {
        self.source.take()
    }
}

/// Begins to deliver rules to `server`.
pub(super) fn start(server: &Server, source: Option<(XdsSource, RulesFeed)>) -> Option<Following> {
    let (source, feed) = source?;
    server.monitor(std::sync::Arc::new(SourceReport(source.status())));
    Some(Following(tokio::spawn(source.run(feed)).abort_handle()))
}

/// A source that delivers rules until this is dropped.
pub(super) struct Following(AbortHandle);

impl Drop for Following {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// The state of the source, for operators.
#[derive(Debug)]
struct SourceReport(SourceStatus);

impl Monitored for SourceReport {
    fn subject(&self) -> &'static str {
        "source of rules"
    }

    fn encode(&self, families: &mut Families<'_>) -> fmt::Result {
        let status = &self.0;
        families.gauge(
            "ratelimit_rules_source_up",
            "1 if the last attempt of this node to fetch rules did not fail",
            u64::from(status.is_up()),
        )?;
        families.counter(
            "ratelimit_rules_source_deliveries",
            "Sets of rules received from where they are fetched",
            status.deliveries(),
        )?;
        families.counter(
            "ratelimit_rules_source_refused",
            "Of those sets, the ones that were refused, as a whole or in part",
            status.refused(),
        )?;
        families.counter(
            "ratelimit_rules_source_errors",
            "Failed attempts to fetch rules",
            status.failures(),
        )
    }

    fn faults(&self) -> Vec<String> {
        self.0.faults()
    }
}

/// The file or folder of the rules.
///
/// # Errors
/// There is none.
pub(super) fn path(settings: &Settings) -> Result<&Path> {
    if let Some(config) = &settings.rules.xds {
        anyhow::bail!(
            "--rules: {} sends its rules to `ratekeeper serve`; name a file or a folder here",
            config.name()
        );
    }
    settings.rules.path.as_deref().ok_or_else(|| {
        anyhow!(
            "there are no rules to serve: neither ./config/rules nor /etc/ratekeeper/rules is there; name a file or a \
             folder with --rules PATH"
        )
    })
}

/// The loader of the rules at `path`.
pub(super) fn of_files(settings: &Settings, path: &Path) -> RulesLoader {
    let loader = RulesLoader::new(RulesSource {
        path: path.to_path_buf(),
        tenants: settings.values.tenants.clone(),
        read: settings.rules.read,
        options: settings.rules.options.clone(),
    });
    keeping_last_good(loader, settings)
}

fn keeping_last_good(loader: RulesLoader, settings: &Settings) -> RulesLoader {
    match &*settings.values.data_dir {
        Some(folder) => loader.keeping_last_good(folder),
        None => loader,
    }
}

/// Loads the rules of files, or the last good ones.
///
/// # Errors
/// They are refused, and there are no others.
pub(super) fn load(loader: &mut RulesLoader, settings: &Settings, path: &Path) -> Result<Loaded> {
    let loaded = match loader.load() {
        Ok(loaded) => loaded,
        Err(error) => {
            let refused = anyhow!(
                "cannot load the rules in {path}:\n\n{}\n\n`ratekeeper rules check {path}` shows the \
                 lines, and what to write instead",
                error.brief(),
                path = path.display()
            );
            last_good::load(loader, settings, refused)?
        }
    };
    for warning in &loaded.warnings {
        let help = warning
            .help
            .as_deref()
            .map(|help| format!("; {help}"))
            .unwrap_or_default();
        warn!("{}: {}{help}", warning.place, warning.message);
    }
    Ok(loaded)
}
