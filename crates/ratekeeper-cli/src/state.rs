//! Counters that survive a restart: loaded at the start, saved periodically and at the end.
//!
//! The file also keeps the hash key that counters are named with, so that they are found again, and the slots of their rules,
//! so that each rule keeps within its share of the memory. It reveals no API key, only how often some counter was hit.

mod lock;
mod regular;
mod report;
mod saver;

use anyhow::{Context, Result, bail};
use lock::{Claim, ClaimError};
use parking_lot::Mutex;
use ratekeeper_core::{Micros, Timestamp};
use ratekeeper_limiter::{Clock, HashKey, RuleSlots};
use ratekeeper_server::make_private_folder;
use ratekeeper_store::memory::{LoadedState, MemoryStore, StateFileError};
use regular::OpenError;
use report::Report;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tracing::{info, warn};

pub(crate) use saver::Saver;

/// The state file of a service, which belongs to this process alone for as long as this lives.
pub(crate) struct State {
    path: PathBuf,
    claim: Mutex<Claim>,
    report: Arc<Report>,
}

impl State {
    /// Claims the state file at `path`, and makes its folder where there is none.
    ///
    /// # Errors
    /// Another process has it, the folder or the lock cannot be made, or something else is in the lock's place.
    pub(crate) fn claim(path: &Path) -> Result<State> {
        make_folder(path).with_context(|| format!("--state {}", path.display()))?;
        let claim = Claim::new(path).map_err(|error| match error {
            error @ ClaimError::Taken { .. } => anyhow::Error::new(error)
                .context("stop it first, or name another file with --state"),
            error => anyhow::Error::new(error),
        })?;
        Ok(State {
            path: path.to_path_buf(),
            claim: Mutex::new(claim),
            report: Arc::default(),
        })
    }

    /// The report on loading and saving, for operators.
    pub(crate) fn report(&self) -> Arc<Report> {
        Arc::clone(&self.report)
    }

    /// Loads the kept counters into `store`, and returns what else they need; [`None`] where there is no file
    /// yet. A damaged file is set aside and nothing is loaded from it: serving without yesterday's counters is better
    /// than not serving.
    ///
    /// # Errors
    /// This user may not read the file, another version of Ratekeeper wrote it, or it was never ours: a FIFO, a device, a
    /// folder, a YAML file. It stays as it is.
    pub(crate) fn load(&self, store: &MemoryStore) -> Result<Option<Kept>> {
        let path = &self.path;
        let mut file = match regular::open(path) {
            Ok(file) => file,
            Err(OpenError::Io(error)) if error.kind() == io::ErrorKind::NotFound => {
                return Ok(None);
            }
            Err(OpenError::Io(error)) if error.kind() != io::ErrorKind::PermissionDenied => {
                self.set_aside(&error);
                return Ok(None);
            }
            Err(error) => {
                let said = format!("cannot load counters from {} (--state)", path.display());
                return Err(anyhow::Error::new(error).context(said));
            }
        };
        match load(store, &mut file) {
            Ok((loaded, hash_key, slots)) => {
                info!(counters = loaded.counters, path = %path.display(), "counters were loaded");
                warn_of_dropped(&loaded);
                let saved_at = loaded.saved_at;
                let ahead = saved_at.since(Clock::new().now());
                if ahead > Micros::from_secs(10) {
                    let seconds = ahead.as_secs_ceil();
                    warn!(
                        seconds,
                        "the clock was set back since the counters were saved: this node's time goes on from theirs, and comes back by 1.8 seconds an hour; to begin with the clock's time and without counters, stop it and remove the file"
                    );
                }
                Ok(Some(Kept {
                    hash_key,
                    slots,
                    saved_at,
                }))
            }
            // Named by mistake: moving it away would remove somebody's rules or settings.
            Err(Unusable::Load(StateFileError::NotAStateFile)) if is_yaml(path) => bail!(
                "{} is not a state file, and would be overwritten; name another with --state",
                path.display()
            ),
            // Its counters are whole, and may be needed by the version that wrote them.
            Err(Unusable::Load(StateFileError::Version(version))) => {
                bail!("--state {}: {version}", path.display())
            }
            Err(error) => {
                self.set_aside(&error);
                Ok(None)
            }
        }
    }

    /// Moves the file out of the way of the next save, so that its loss can be looked into.
    fn set_aside(&self, why: &dyn std::error::Error) {
        let mut aside = self.path.as_os_str().to_owned();
        aside.push(".damaged");
        let moved = fs::rename(&self.path, &aside);
        let aside = Path::new(&aside).display();
        self.report.set_aside();
        match moved {
            Ok(()) => {
                warn!(%why, %aside, "the state file cannot be used and was set aside; all counters start empty");
            }
            Err(error) => {
                warn!(%why, %aside, %error, "the state file cannot be used, nor set aside; all counters start empty");
            }
        }
    }
}

/// The needs of loaded counters.
pub(crate) struct Kept {
    /// The key that they were named with.
    pub(crate) hash_key: HashKey,
    /// The slots of their rules.
    pub(crate) slots: RuleSlots,
    /// The time that requests are decided at, at the earliest.
    pub(crate) saved_at: Timestamp,
}

/// The reason why a file could be opened but not used.
#[derive(Debug, thiserror::Error)]
enum Unusable {
    #[error(transparent)]
    Load(#[from] StateFileError),
    #[error("the state file lacks its hash key, or the slots of its rules")]
    Header,
}

/// Loads `file` into `store`; returns what lives on, the hash key of the counters, and the slots of their rules.
fn load(
    store: &MemoryStore,
    file: &mut File,
) -> Result<(LoadedState, HashKey, RuleSlots), Unusable> {
    let loaded = store.load(file, Clock::new().now())?;
    match header(&loaded) {
        Some((key, slots)) => Ok((loaded, key, slots)),
        None => {
            store.clear();
            Err(Unusable::Header)
        }
    }
}

/// Reads the header that a state was saved with. A file of an earlier version has no slots.
fn header(loaded: &LoadedState) -> Option<(HashKey, RuleSlots)> {
    let (key, slots) = loaded.header.split_first_chunk()?;
    let slots = match loaded.has_rules {
        true => RuleSlots::from_bytes(slots)?,
        false => slots.is_empty().then(RuleSlots::default)?,
    };
    Some((HashKey::from_bytes(*key), slots))
}

/// Tells of what is forgotten for want of room: more passes than the limits say, and repeats are charged again.
fn warn_of_dropped(loaded: &LoadedState) {
    let (counters, requests) = (loaded.dropped, loaded.records_dropped);
    if counters > 0 || requests > 0 {
        warn!(
            counters,
            requests,
            "there is no room for some of the saved counters and idempotent requests: they are forgotten; raise \
             `memory_limit`"
        );
    }
}

fn is_yaml(path: &Path) -> bool {
    path.extension()
        .is_some_and(|extension| extension == "yaml" || extension == "yml")
}

/// Makes the folder that `path` lies in, if it is not there.
fn make_folder(path: &Path) -> io::Result<()> {
    match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => {
            make_private_folder(folder).map_err(|error| {
                let said = format!("cannot make the folder {}: {error}", folder.display());
                io::Error::new(error.kind(), said)
            })
        }
        _ => Ok(()),
    }
}
