//! Keeps the rules in force in step with the files, or with what is delivered from elsewhere.
//!
//! A change is anything that makes the files read differently: an event of the file system, a
//! SIGHUP and a slow poll only say when to look. What was read is taken once two readings a
//! quiet time apart agree, and nobody has one of the files open for writing, as far as the system
//! tells. That needs no knowledge of how the change was made: folders moved into place and swapped
//! symbolic links read differently until they are done. A set that does not load is refused whole; the last good one stays in force.

mod feed;
pub(crate) mod follow;
mod history;
mod last_good;
mod loader;
mod source;
mod status;
mod watch;
mod writes;

#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use ratekeeper_rules::{Change, Domain, Loaded, RuleSet, Source};
use tokio::sync::{Notify, watch as channel};
use tokio::time::sleep;
use tracing::{error, info, warn};

pub use feed::{DeliveryError, FeedConfig, OnBadText, RulesFeed};
pub use loader::{LoadError, RulesLoader};
pub use source::RulesSource;
pub use status::ReloadStatus;
pub use watch::WatchConfig;

use crate::admin_json::moments::unix_seconds;
use crate::blocking::blocking;
use feed::Compiled;
pub(crate) use history::ReloadEntry;
use history::{CHANGES_MAX, cut};
use loader::Reading;
use watch::Watch;
use writes::Writes;

/// Watches, reads and applies, until it is dropped.
pub(crate) struct Reloader<A> {
    loader: RulesLoader,
    config: WatchConfig,
    /// Puts a set in force and returns what that changes.
    apply: Arc<A>,
    status: channel::Sender<ReloadStatus>,
    /// Told from outside to look (SIGHUP), and by the watch.
    wake: Arc<Notify>,
    writes: Arc<Writes>,
    /// True once the missing watch has been logged.
    is_blind: bool,
}

impl<A: Fn(RuleSet) -> Vec<Change> + Send + Sync + 'static> Reloader<A> {
    pub(crate) fn new(
        loader: RulesLoader,
        config: WatchConfig,
        status: channel::Sender<ReloadStatus>,
        wake: Arc<Notify>,
        apply: A,
    ) -> Self {
        Self {
            loader,
            config,
            apply: Arc::new(apply),
            status,
            wake,
            writes: Arc::default(),
            is_blind: false,
        }
    }

    /// Runs for ever. May be called again after a panic ended it.
    pub(crate) async fn run(&mut self) {
        if self.loader.is_fed() {
            self.take_deliveries().await;
        } else {
            self.follow_files().await;
        }
    }

    /// Takes what is delivered, one delivery after the other.
    async fn take_deliveries(&mut self) {
        while let Some(delivery) = self.loader.delivery().await {
            let taken = self.take_delivered(delivery.sources).await;
            // A source that has gone does not want to know.
            let _ = delivery.answer.send(taken);
        }
        // The rules stay as they are.
        std::future::pending().await
    }

    async fn take_delivered(&mut self, sources: Vec<Source>) -> Result<(), DeliveryError> {
        if self.loader.are_in_force(&sources, &BTreeSet::new()) {
            self.record_unchanged();
            return Ok(());
        }
        let refused = match self.loader.compile_delivered(sources).await {
            // The same as the last time, which was told then.
            None => self.status.borrow().error.clone(),
            Some(Ok(compiled)) => self.take_compiled(compiled).await,
            Some(Err(mistakes)) => {
                self.record_refused(Arc::clone(&mistakes));
                Some(mistakes)
            }
        };
        refused.map_or(Ok(()), |why| Err(DeliveryError::Refused(why)))
    }

    /// Puts what was compiled of a delivery in force, and returns the mistakes of the rest.
    async fn take_compiled(&mut self, compiled: Compiled) -> Option<Arc<str>> {
        let without_rules = compiled.is_nothing() && !self.status.borrow().is_loaded();
        let Compiled {
            loaded,
            sources,
            left_out,
        } = compiled;
        let refused = loaded.rules.refused_domains().clone();
        if without_rules || self.loader.are_in_force(&sources, &refused) {
            self.record_refused(left_out.clone().unwrap_or_default());
            return left_out;
        }
        self.put_in_force(loaded, left_out.clone()).await;
        let is_whole = left_out.is_none();
        self.loader
            .keep_delivered(sources, &refused, is_whole)
            .await;
        left_out
    }

    /// Reads the files whenever they may have changed.
    async fn follow_files(&mut self) {
        let mut watch = None;
        // Sets up the watch, and looks for what changed between the first load and that.
        self.wake.notify_one();
        loop {
            let period = self.poll_period(watch.is_some());
            tokio::select! {
                () = self.wake.notified() => {
                    // Folders that were swapped are other folders now; and what happens
                    // from here on wakes us again.
                    let before = std::mem::replace(&mut watch, self.watch());
                    self.look().await;
                    // However often the files change: no more than one look a quiet time.
                    sleep(self.config.quiet).await;
                    // Not earlier: of files that were closed meanwhile, only it may tell.
                    drop(before);
                }
                () = sleep(period), if self.config.enabled => {
                    if watch.is_none() {
                        watch = self.watch();
                    }
                    self.look().await;
                }
            }
        }
    }

    /// The channel for the status, for the task that reports that this one has ended.
    pub(crate) fn status_sender(&self) -> channel::Sender<ReloadStatus> {
        self.status.clone()
    }

    /// A fresh watch of all files; None if there is to be none, or the system has none to give.
    fn watch(&mut self) -> Option<Watch> {
        if !self.config.enabled {
            return None;
        }
        match Watch::new(self.loader.paths(), &self.wake, &self.writes) {
            Ok(watch) => {
                self.is_blind = false;
                Some(watch)
            }
            Err(error) => {
                self.writes.forget();
                if !std::mem::replace(&mut self.is_blind, true) {
                    warn!(%error, "the file system does not report changes; polling instead");
                }
                None
            }
        }
    }

    /// Without events, polling alone must be fast enough.
    fn poll_period(&self, has_events: bool) -> Duration {
        let without_events = Duration::from_secs(1);
        let period = self.config.poll_interval;
        let period = if has_events {
            period
        } else {
            period.min(without_events)
        };
        period.max(Duration::from_millis(10))
    }

    /// Reads the files, waits until they are quiet if they changed, and takes them.
    async fn look(&mut self) {
        let mut seen = self.loader.read().await;
        while !self.loader.is_known(&seen) {
            sleep(self.config.quiet).await;
            self.writes.settled(seen.files()).await;
            let again = self.loader.read().await;
            if again.fingerprint() == seen.fingerprint() {
                break;
            }
            seen = again;
        }
        if self.loader.is_in_force(&seen) {
            self.record_unchanged();
        } else if !self.loader.is_known(&seen) {
            self.take(seen).await;
        }
    }

    /// The rules that were read are in force: if others were in between, or they were the last good ones of another run,
    /// say that they are again.
    fn record_unchanged(&mut self) {
        self.loader.forget_refused();
        let restored = self.status.send_if_modified(|status| {
            let was_kept = status.last_good_of.take().is_some();
            if was_kept {
                status.accepted += 1;
                status.last_at = unix_seconds();
            }
            status.error.take().is_some() || was_kept
        });
        if restored {
            info!("the rules equal those in use again");
        }
    }

    async fn take(&mut self, seen: Reading) {
        let fingerprint = seen.fingerprint();
        match self.loader.compile(seen).await {
            Ok(loaded) => {
                self.put_in_force(loaded, None).await;
                self.loader.set_in_force(fingerprint);
                self.loader.keep_last_good().await;
            }
            Err(error) => self.record_refused(error.brief().into()),
        }
    }

    /// Puts rules in force; `left_out` are the mistakes of texts that are not among them.
    async fn put_in_force(&mut self, loaded: Loaded, left_out: Option<Arc<str>>) {
        for warning in &loaded.warnings {
            warn!("{}", warning.brief());
        }
        let rules = loaded.rules.rules().len();
        let tenants = loaded.rules.domains().map(Domain::tenants_listed);
        let tenants: usize = tenants.sum();
        let apply = Arc::clone(&self.apply);
        let changes = blocking(move || apply(loaded.rules)).await;
        let entry = ReloadEntry::accepted(unix_seconds(), &changes);
        self.status.send_modify(|status| {
            status.last_at = entry.at();
            status.accepted += 1;
            status.error = None;
            status.last_good_of = None;
            status.history.record(entry);
        });
        info!(rules, tenants, changes = changes.len(), "new rules in use");
        log_changes(&changes);
        if let Some(mistakes) = left_out {
            self.record_refused(mistakes);
        }
    }

    /// Tells of rules that were refused.
    fn record_refused(&self, error: Arc<str>) {
        match self.status.borrow().is_loaded() {
            true => error!(%error, "new rules refused; the last good ones stay in use"),
            false => {
                error!(%error, "new rules refused; there are none in use, and nothing is decided")
            }
        }
        let entry = ReloadEntry::refused(unix_seconds(), &error);
        self.status.send_modify(|status| {
            status.last_at = entry.at();
            status.refused += 1;
            status.error = Some(error);
            status.history.record(entry);
        });
    }
}

/// Logs which rules changed, from what to what.
fn log_changes(changes: &[Change]) {
    for change in changes.iter().take(CHANGES_MAX) {
        info!("{}", cut(&change.to_string()));
    }
    let further = changes.len().saturating_sub(CHANGES_MAX);
    if further > 0 {
        info!("{further} further changes are not listed");
    }
}
