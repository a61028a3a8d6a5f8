//! The rules of a start, and the source that goes on to deliver them.

use super::last_good;
use crate::settings::{Fetched, OnBrokenRules, Settings};
use anyhow::{Context as _, Result, anyhow};
use ratekeeper_rules::{Loaded, RuleSet};
use ratekeeper_server::{
    Families, FeedConfig, Monitored, OnBadText, RulesFeed, RulesLoader, RulesSource, Server,
};
use ratekeeper_sources::{SourceStatus, TextsSource, XdsSource};
use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::{AbortHandle, JoinHandle};
use tracing::warn;

/// The rules that a server starts with.
pub(super) struct StartRules {
    pub(super) loader: RulesLoader,
    pub(super) rules: RuleSet,
    /// Their place, for people.
    pub(super) place: String,
    /// The source and its feed, where they do not come from files.
    source: Option<FedSource>,
}

/// A source, and the feed that it delivers to.
pub(super) struct FedSource {
    source: RulesFetcher,
    feed: RulesFeed,
}

enum RulesFetcher {
    Xds(Box<XdsSource>),
    Texts(Box<TextsSource>),
}

impl RulesFetcher {
    /// The fetcher, and the fate of texts beside a bad one: what people write in one place belongs together, what a control
    /// plane sends are many people's.
    fn new(place: &Fetched, interval: Duration) -> Result<(Self, OnBadText)> {
        Ok(match place {
            Fetched::Xds(config) => {
                let source = XdsSource::new(config.clone()).context("--rules")?;
                (Self::Xds(Box::new(source)), OnBadText::TakeOthers)
            }
            Fetched::Texts(place) => {
                let source = TextsSource::new(place.clone(), interval).context("--rules")?;
                (Self::Texts(Box::new(source)), OnBadText::RefuseAll)
            }
        })
    }
}

impl StartRules {
    /// # Errors
    /// There are no rules, or those of the files are refused.
    pub(super) fn new(settings: &Settings) -> Result<Self> {
        match &settings.rules.fetched {
            Some(place) => Self::fetched(settings, place),
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

    /// Of a place elsewhere: the last good ones, or none until some come.
    fn fetched(settings: &Settings, place: &Fetched) -> Result<Self> {
        let (source, on_bad_text) = RulesFetcher::new(place, *settings.values.rules_interval)?;
        let options = &settings.rules.options;
        let (loader, feed) = RulesLoader::fed(FeedConfig {
            name: place.name(),
            options: options.clone(),
            on_bad_text,
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
                place.name()
            );
        }
        Ok(Self {
            loader,
            rules,
            place: place.name(),
            source: Some(FedSource { source, feed }),
        })
    }

    /// Takes the source out, to be started once the server is bound.
    pub(super) const fn take_source(&mut self) -> Option<FedSource> {
        self.source.take()
    }
}

/// Begins to deliver rules to `server`.
pub(super) fn start(server: &Server, source: Option<FedSource>) -> Option<Following> {
    let FedSource { source, feed } = source?;
    let (status, task) = match source {
        RulesFetcher::Xds(source) => (source.source_status(), tokio::spawn(source.run(feed))),
        RulesFetcher::Texts(source) => (source.source_status(), tokio::spawn(source.run(feed))),
    };
    server.monitor(Arc::new(SourceReport(status)));
    Some(Following::of(&task))
}

/// A source that is followed until this is dropped.
pub(super) struct Following(AbortHandle);

impl Following {
    pub(super) fn of(task: &JoinHandle<()>) -> Self {
        Self(task.abort_handle())
    }
}

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
            "1 if the last attempt of this node to fetch rules did not fail, and does not wait long for an answer",
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
    if let Some(place) = &settings.rules.fetched {
        anyhow::bail!(
            "--rules: rules from {} are for `ratekeeper serve` and `gateway`; name a file or a folder here",
            place.name()
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
