//! Reads rules, and knows what it has read before.

use std::collections::{BTreeSet, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ratekeeper_rules::{
    Diagnostics, Loaded, Options, ReadError, ReadOptions, Source, Unreadable, load, read,
};
use tracing::error;

use super::feed::{Compiled, Delivery, FeedConfig, FeedEnd, RulesFeed, fingerprint};
use super::last_good::{LastGood, asked_of_feed, asked_of_files};
use super::source::RulesSource;
use super::status::ReloadStatus;
use crate::admin_json::moments::unix_seconds;
use crate::blocking::blocking;

/// The reason rules were not loaded.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LoadError {
    /// They could not be read.
    #[error("{0}: {source}", source = source_of(.0))]
    Read(ReadError),
    /// The folder has no file of rules. Rules without a single file are more likely on their way
    /// than meant: a deployment that removes first and copies then would let everyone through.
    #[error("there is no rules file in {0}")]
    Empty(String),
    /// They say something that no rules may say: every place, all at once.
    #[error("{0}")]
    Refused(Diagnostics),
    /// They come from a feed, and nothing was delivered so far.
    #[error("no rules have come from {0} yet")]
    Awaited(Arc<str>),
}

impl LoadError {
    /// Describes the mistakes and their places, a line for each, without quoting the file: it may
    /// hold a secret, and logs and health answers have more readers than rules do.
    #[must_use]
    pub fn brief(&self) -> String {
        match self {
            Self::Refused(mistakes) => mistakes.brief(),
            Self::Read(_) | Self::Empty(_) | Self::Awaited(_) => self.to_string(),
        }
    }
}

fn source_of(error: &ReadError) -> String {
    std::error::Error::source(error).map_or_else(String::new, ToString::to_string)
}

/// The place that rules come from.
#[derive(Debug)]
enum Origin {
    Files(Arc<RulesSource>),
    Feed(FeedEnd),
}

impl Origin {
    fn options(&self) -> &Options {
        match self {
            Self::Files(source) => &source.options,
            Self::Feed(feed) => &feed.options,
        }
    }
}

/// Loads rules from files or from a feed, and remembers what is in force and what was refused, so that
/// nothing is taken or refused twice.
#[derive(Debug)]
pub struct RulesLoader {
    origin: Origin,
    in_force: Option<u64>,
    refused: Option<u64>,
    status: ReloadStatus,
    /// [`None`] if there is no data folder.
    last_good: Option<Arc<LastGood>>,
    /// The texts that were compiled last, to be kept once they are in force.
    compiled: Arc<[Source]>,
}

impl RulesLoader {
    /// A loader of files that has read nothing yet.
    #[must_use]
    pub fn new(source: RulesSource) -> Self {
        Self::of(Origin::Files(Arc::new(source)))
    }

    /// A loader of what is delivered to the feed beside it.
    #[must_use]
    pub fn fed(config: FeedConfig) -> (Self, RulesFeed) {
        let (end, feed) = FeedEnd::new(config);
        let status = ReloadStatus {
            feed: Some(Arc::clone(&end.name)),
            ..ReloadStatus::default()
        };
        let loader = Self {
            status,
            ..Self::of(Origin::Feed(end))
        };
        (loader, feed)
    }

    fn of(origin: Origin) -> Self {
        Self {
            origin,
            in_force: None,
            refused: None,
            status: ReloadStatus::default(),
            last_good: None,
            compiled: Arc::default(),
        }
    }

    /// Keeps the rules in force in `folder`, for a start while the files are broken, or before the feed delivers.
    #[must_use]
    pub fn keeping_last_good(mut self, folder: &Path) -> Self {
        let asked = match &self.origin {
            Origin::Files(source) => asked_of_files(source),
            Origin::Feed(feed) => asked_of_feed(&feed.name),
        };
        self.last_good = Some(Arc::new(LastGood::new(folder, asked)));
        self
    }

    /// The first load: what a [`Limiter`](ratekeeper_limiter::Limiter) starts with. Blocks on
    /// the file system.
    ///
    /// A server may be started after an error too: it then refuses every request, until
    /// the files load.
    ///
    /// # Errors
    /// The files cannot be read, or are refused; or the rules come from a feed, which delivers only to a server that runs.
    pub fn load(&mut self) -> Result<Loaded, LoadError> {
        let source = match &self.origin {
            Origin::Files(source) => source,
            Origin::Feed(feed) => return Err(LoadError::Awaited(Arc::clone(&feed.name))),
        };
        let reading = Reading::new(source);
        let fingerprint = reading.fingerprint();
        let loaded = reading.compile(&source.options);
        self.status.last_at = unix_seconds();
        match loaded {
            Ok((loaded, sources)) => {
                self.in_force = Some(fingerprint);
                self.status.accepted += 1;
                self.status.error = None;
                if let Some(last_good) = &self.last_good {
                    last_good.keep(self.status.last_at, &sources);
                }
                Ok(loaded)
            }
            Err(error) => {
                self.refused = Some(fingerprint);
                self.status.refused += 1;
                self.status.error = Some(error.brief().into());
                Err(error)
            }
        }
    }

    /// Loads the rules that were in force last, after the files were [refused](Self::load), or before the feed delivers.
    /// [`None`] if none were kept for these files or this feed, or they cannot be used, which is logged. Blocks on the file
    /// system.
    pub fn load_last_good(&mut self) -> Option<Loaded> {
        let last_good = self.last_good.as_ref()?;
        let path = last_good.path().display();
        let good = match last_good.read() {
            Ok(good) => good?,
            Err(why) => {
                error!(%why, %path, "the last good rules cannot be used");
                return None;
            }
        };
        let reading = Reading::of(Ok(Unreadable {
            sources: good.sources,
            ..Unreadable::default()
        }));
        let of_files = reading.fingerprint();
        match reading.compile(self.origin.options()) {
            Ok((loaded, sources)) => {
                self.in_force = Some(match self.origin {
                    Origin::Files(_) => of_files,
                    Origin::Feed(_) => fingerprint(&sources, &BTreeSet::new()),
                });
                self.compiled = sources.into();
                self.status.last_good_of = Some(good.at);
                Some(loaded)
            }
            Err(error) => {
                let why = error.brief();
                error!(%why, %path, "the last good rules are refused too");
                None
            }
        }
    }

    /// The outcome of the loads so far.
    #[must_use]
    pub const fn reload_status(&self) -> &ReloadStatus {
        &self.status
    }

    /// Returns true if rules are delivered, so that there are no files to look at.
    pub(super) const fn is_fed(&self) -> bool {
        matches!(self.origin, Origin::Feed(_))
    }

    /// The next delivery; [`None`] if there are none, or no more.
    pub(super) async fn delivery(&mut self) -> Option<Delivery> {
        match &mut self.origin {
            Origin::Feed(feed) => feed.next().await,
            Origin::Files(_) => None,
        }
    }

    /// Compiles what was delivered; [`None`] if that is what was taken or refused last. It counts as refused until
    /// [`Self::keep_delivered`] says otherwise, so that what makes us panic on the way is not tried over and over.
    ///
    /// # Errors
    /// The mistakes, if nothing of it can be put in force.
    pub(super) async fn compile_delivered(
        &mut self,
        sources: Vec<Source>,
    ) -> Option<Result<Compiled, Arc<str>>> {
        let delivered = fingerprint(&sources, &BTreeSet::new());
        let Origin::Feed(feed) = &self.origin else {
            return None;
        };
        if [self.in_force, self.refused].contains(&Some(delivered)) {
            return None;
        }
        self.refused = Some(delivered);
        let compile = feed.compiler(Arc::clone(&self.compiled));
        Some(blocking(move || compile(sources)).await)
    }

    /// Returns true if `sources` are the texts in force, and `refused` the domains without rules beside them.
    pub(super) fn are_in_force(&self, sources: &[Source], refused: &BTreeSet<Box<str>>) -> bool {
        self.in_force == Some(fingerprint(sources, refused))
    }

    /// Records that `sources`, which are in force now, are what was left of a delivery, and keeps them; `refused` are the
    /// domains without rules beside them.
    pub(super) async fn keep_delivered(
        &mut self,
        sources: Vec<Source>,
        refused: &BTreeSet<Box<str>>,
        is_whole: bool,
    ) {
        self.in_force = Some(fingerprint(&sources, refused));
        if is_whole {
            self.refused = None;
        }
        self.compiled = sources.into();
        self.keep_last_good().await;
    }

    /// The paths of the rules and of the tenants; none of a feed.
    pub(super) fn paths(&self) -> impl Iterator<Item = &Path> {
        let source = match &self.origin {
            Origin::Files(source) => Some(source),
            Origin::Feed(_) => None,
        };
        let paths = source.map(|source| [Some(&*source.path), source.tenants.as_deref()]);
        paths.into_iter().flatten().flatten()
    }

    /// Reads the files, off the threads that answer requests.
    pub(super) async fn read(&self) -> Reading {
        match &self.origin {
            Origin::Files(source) => {
                let source = Arc::clone(source);
                blocking(move || Reading::new(&source)).await
            }
            Origin::Feed(feed) => Reading::of(Err(LoadError::Awaited(Arc::clone(&feed.name)))),
        }
    }

    /// Compiles what was read. It counts as refused until [`Self::set_in_force`] says otherwise,
    /// so that what makes us panic on the way is not tried over and over.
    pub(super) async fn compile(&mut self, reading: Reading) -> Result<Loaded, LoadError> {
        let options = self.origin.options().clone();
        self.refused = Some(reading.fingerprint());
        let (loaded, sources) = blocking(move || reading.compile(&options)).await?;
        self.compiled = sources.into();
        Ok(loaded)
    }

    /// Keeps what was compiled last, which is in force now.
    pub(super) async fn keep_last_good(&mut self) {
        let sources = match self.origin {
            // Its bad texts are replaced by these.
            Origin::Feed(_) => Arc::clone(&self.compiled),
            Origin::Files(_) => std::mem::take(&mut self.compiled),
        };
        if let Some(last_good) = self.last_good.clone() {
            blocking(move || last_good.keep(unix_seconds(), &sources)).await;
        }
    }

    /// Records that the reading with this fingerprint is in force from now on.
    pub(super) const fn set_in_force(&mut self, fingerprint: u64) {
        (self.in_force, self.refused) = (Some(fingerprint), None);
    }

    pub(super) fn is_in_force(&self, reading: &Reading) -> bool {
        self.in_force == Some(reading.fingerprint())
    }

    /// Returns true if there is nothing new to do: the reading is in force, or was the last
    /// refused.
    pub(super) fn is_known(&self, reading: &Reading) -> bool {
        self.is_in_force(reading) || self.refused == Some(reading.fingerprint())
    }

    /// The files are what is in force again: what was refused would be news once more.
    pub(super) const fn forget_refused(&mut self) {
        self.refused = None;
    }
}

/// The contents of the files at one moment, or the reason they could not be read.
pub(super) struct Reading {
    /// The texts, and the errors of files that are none.
    read: Result<Unreadable, LoadError>,
    fingerprint: u64,
}

impl Reading {
    fn new(source: &RulesSource) -> Self {
        Self::of(read_all(source))
    }

    fn of(read: Result<Unreadable, LoadError>) -> Self {
        // Only compared with others of this process, so the hash need not last.
        let mut hasher = DefaultHasher::new();
        match &read {
            Ok(read) => {
                for source in &read.sources {
                    (&source.name, &source.text).hash(&mut hasher);
                }
                read.to_string().hash(&mut hasher);
            }
            Err(error) => error.to_string().hash(&mut hasher),
        }
        Self {
            read,
            fingerprint: hasher.finish(),
        }
    }

    pub(super) const fn fingerprint(&self) -> u64 {
        self.fingerprint
    }

    /// The files that were read.
    pub(super) fn files(&self) -> Vec<PathBuf> {
        let sources = self.read.iter().flat_map(|read| &read.sources);
        sources.map(|source| PathBuf::from(&source.name)).collect()
    }

    /// Returns the rules, and the texts that they were compiled from.
    fn compile(self, options: &Options) -> Result<(Loaded, Vec<Source>), LoadError> {
        let read = self.read?;
        if !read.errors.is_empty() {
            return Err(LoadError::Refused(read.all(options)));
        }
        let loaded = load(&read.sources, options).map_err(LoadError::Refused)?;
        Ok((loaded, read.sources))
    }
}

/// Reads the rules and the tenants.
fn read_all(source: &RulesSource) -> Result<Unreadable, LoadError> {
    let mut all = Unreadable::default();
    let mut known = HashSet::new();
    let rules = std::iter::once((&source.path, source.read));
    let tenants = source
        .tenants
        .iter()
        .map(|path| (path, ReadOptions::default()));
    for (path, options) in rules.chain(tenants) {
        let (more, errors) = match read(path, &options) {
            Ok(more) if more.is_empty() => {
                return Err(LoadError::Empty(path.display().to_string()));
            }
            Ok(more) => (more, Vec::new()),
            Err(ReadError::Unreadable(some)) => (some.sources, some.errors),
            Err(error) => return Err(LoadError::Read(error)),
        };
        all.errors.extend(errors);
        // A file of tenants may lie among the rules.
        let new = more
            .into_iter()
            .filter(|source| known.insert(source.name.clone()));
        all.sources.extend(new);
    }
    Ok(all)
}
