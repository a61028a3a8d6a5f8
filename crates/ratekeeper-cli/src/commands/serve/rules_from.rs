//! The rules of a start, and the source that goes on to deliver them.

use super::last_good;
use crate::background::Background;
use crate::settings::{Fetched, OnBrokenRules, Settings};
use anyhow::{Context as _, Result, anyhow};
use ratekeeper_rules::{Loaded, RuleSet};
use ratekeeper_server::{
    Families, FeedConfig, MaintenanceTask, Monitored, OnBadText, RulesFeed, RulesLoader,
    RulesSource, Server,
};
use ratekeeper_sources::{SourceStatus, TextsSource, XdsSource};
use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Mutex;
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
pub(super) fn start(server: &Server, source: Option<FedSource>) -> Option<Background> {
    let source = source?;
    let task = Arc::new(MaintenanceTask::new("source of rules"));
    server.monitor(Arc::new(SourceReport {
        status: source.status(),
        task: Arc::clone(&task),
    }));
    Some(source.keep_delivering(task))
}

impl FedSource {
    fn status(&self) -> SourceStatus {
        match &self.source {
            RulesFetcher::Xds(source) => source.source_status(),
            RulesFetcher::Texts(source) => source.source_status(),
        }
    }

    /// Delivers until the server ends, or the result is dropped.
    fn keep_delivering(self, task: Arc<MaintenanceTask>) -> Background {
        // Only one task at a time holds the lock.
        let kept = Arc::new(Mutex::new(self));
        Background::until_done(task, move || {
            let kept = Arc::clone(&kept);
            async move {
                let FedSource { source, feed } = &mut *kept.lock().await;
                match source {
                    RulesFetcher::Xds(source) => source.run(feed).await,
                    RulesFetcher::Texts(source) => source.run(feed).await,
                }
            }
        })
    }
}

/// The state of the source, for operators.
#[derive(Debug)]
struct SourceReport {
    status: SourceStatus,
    task: Arc<MaintenanceTask>,
}

impl Monitored for SourceReport {
    fn subject(&self) -> &'static str {
        "source of rules"
    }

    fn encode(&self, families: &mut Families<'_>) -> fmt::Result {
        let status = &self.status;
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
        self.status.faults()
    }

    fn tasks(&self) -> Vec<(&'static str, u64)> {
        vec![(self.task.name(), self.task.failures())]
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

#[cfg(test)]
mod tests {
    use super::*;
    use ratekeeper_sources::{TextsPlace, UrlConfig};
    use ratekeeper_testkit::fragile_log::FragileLog;
    use ratekeeper_tls::TlsFiles;
    use tokio::time::{sleep, timeout};

    /// A log can fail, as anything can.
    #[tokio::test]
    async fn a_source_goes_on_after_a_panic() {
        let place = Fetched::Texts(TextsPlace::Url(UrlConfig {
            url: "http://127.0.0.1:1/rules".to_owned(),
            server_name: None,
            tls: TlsFiles::default(),
            token: None,
        }));
        let fetcher = RulesFetcher::new(&place, Duration::from_millis(1));
        let (source, on_bad_text) = fetcher.expect("it is a URL");
        let (_loader, feed) = RulesLoader::fed(FeedConfig {
            name: place.name(),
            options: ratekeeper_rules::Options::default(),
            on_bad_text,
        });
        let source = FedSource { source, feed };
        let (status, task) = (source.status(), Arc::new(MaintenanceTask::new("source")));
        let _log = FragileLog::panicking_at("cannot be fetched");
        let following = source.keep_delivering(Arc::clone(&task));
        let goes_on = async {
            while task.failures() == 0 || status.failures() < 2 {
                sleep(Duration::from_millis(10)).await;
            }
        };
        let goes_on = timeout(Duration::from_secs(60), goes_on).await;
        goes_on.expect("it is counted and begun again");
        drop(following);
    }
}
