//! Reads rules, and knows what it has read before.

use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::Path;
use std::sync::Arc;

use ratekeeper_rules::{
    Diagnostics, Loaded, ReadError, ReadOptions, Source, Unreadable, load, read,
};
use tracing::error;

use super::last_good::LastGood;
use super::status::{ReloadStatus, unix_seconds};
use crate::blocking::blocking;
use crate::config::RulesSource;

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
}

impl LoadError {
    /// Describes the mistakes and their places, a line for each, without quoting the file: it may
    /// hold a secret, and logs and health answers have more readers than rules do.
    #[must_use]
    pub fn brief(&self) -> String {
        match self {
            Self::Refused(mistakes) => mistakes.brief(),
            Self::Read(_) | Self::Empty(_) => self.to_string(),
        }
    }
}

fn source_of(error: &ReadError) -> String {
    std::error::Error::source(error).map_or_else(String::new, ToString::to_string)
}

/// Loads rules from files, and remembers what is in force and what was refused, so that
/// nothing is taken or refused twice.
#[derive(Debug)]
pub struct RulesLoader {
    source: Arc<RulesSource>,
    in_force: Option<u64>,
    refused: Option<u64>,
    status: ReloadStatus,
    /// [`None`] if there is no data folder.
    last_good: Option<Arc<LastGood>>,
    /// The texts that were compiled last, to be kept once they are in force.
    compiled: Vec<Source>,
}

impl RulesLoader {
    /// A loader that has read nothing yet.
    #[must_use]
    pub fn new(source: RulesSource) -> Self {
        Self {
            source: Arc::new(source),
            in_force: None,
            refused: None,
            status: ReloadStatus::default(),
            last_good: None,
            compiled: Vec::new(),
        }
    }

    /// Keeps the rules in force in `folder`, for a start while the files are broken.
    #[must_use]
    pub fn keeping_last_good(mut self, folder: &Path) -> Self {
        self.last_good = Some(Arc::new(LastGood::new(folder, &self.source)));
        self
    }

    /// The first load: what a [`Limiter`](ratekeeper_limiter::Limiter) starts with. Blocks on
    /// the file system.
    ///
    /// A server may be started after an error too: it then refuses every request, until
    /// the files load.
    ///
    /// # Errors
    /// The files cannot be read, or are refused.
    pub fn load(&mut self) -> Result<Loaded, LoadError> {
        let reading = Reading::new(&self.source);
        let fingerprint = reading.fingerprint();
        let loaded = reading.compile(&self.source);
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

    /// Loads the rules that were in force last, after the files were [refused](Self::load). [`None`] if none were kept for
    /// these files, or they cannot be used, which is logged. Blocks on the file system.
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
        let fingerprint = reading.fingerprint();
        match reading.compile(&self.source) {
            Ok((loaded, _)) => {
                self.in_force = Some(fingerprint);
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
    pub const fn status(&self) -> &ReloadStatus {
        &self.status
    }

    /// The paths of the rules and of the tenants.
    pub(super) fn paths(&self) -> impl Iterator<Item = &Path> {
        let tenants = self.source.tenants.as_deref();
        std::iter::once(&*self.source.path).chain(tenants)
    }

    /// Reads the files, off the threads that answer requests.
    pub(super) async fn read(&self) -> Reading {
        let source = Arc::clone(&self.source);
        blocking(move || Reading::new(&source)).await
    }

    /// Compiles what was read. It counts as refused until [`Self::set_in_force`] says otherwise,
    /// so that what makes us panic on the way is not tried over and over.
    pub(super) async fn compile(&mut self, reading: Reading) -> Result<Loaded, LoadError> {
        let source = Arc::clone(&self.source);
        self.refused = Some(reading.fingerprint());
        let (loaded, sources) = blocking(move || reading.compile(&source)).await?;
        self.compiled = sources;
        Ok(loaded)
    }

    /// Keeps what was compiled last, which is in force now.
    pub(super) async fn keep_last_good(&mut self) {
        let sources = std::mem::take(&mut self.compiled);
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

    /// Returns the rules, and the texts that they were compiled from.
    fn compile(self, source: &RulesSource) -> Result<(Loaded, Vec<Source>), LoadError> {
        let read = self.read?;
        if !read.errors.is_empty() {
            return Err(LoadError::Refused(read.all(&source.options)));
        }
        let loaded = load(&read.sources, &source.options).map_err(LoadError::Refused)?;
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
