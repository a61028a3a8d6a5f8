//! Counters over a restart: loaded at start, saved now and then and at the end.
//!
//! The file also keeps the seed under which counters are named, so that they are found again; whoever reads it learns no
//! API key, only how often some counter was hit.

use crate::store::NodeStore;
use anyhow::{Context, Result, bail};
use ratekeeper_limiter::{Clock, Limiter, Seed};
use ratekeeper_store::memory::{LoadError, MemoryStore};
use std::fs::{File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::task::{JoinHandle, spawn_blocking};
use tokio::time::{MissedTickBehavior, interval};
use tracing::{info, warn};

/// Between two saves: what a crash may forget.
const EVERY: Duration = Duration::from_secs(10);

/// A state file that is this process's alone, for as long as this lives.
pub(crate) struct Claim {
    _locked: File,
}

/// Claims the state file at `path` by a lock on a file beside it (`path` + `.lock`), which the
/// system lets go of when the process ends, however it ends.
///
/// # Errors
/// Another process has it, or the folder or the file cannot be made.
pub(crate) fn claim(path: &Path) -> Result<Claim> {
    let folder = path
        .parent()
        .filter(|folder| !folder.as_os_str().is_empty());
    if let Some(folder) = folder {
        std::fs::create_dir_all(folder)
            .with_context(|| format!("cannot make {} for --state", folder.display()))?;
    }
    let mut beside = path.as_os_str().to_owned();
    beside.push(".lock");
    let beside = PathBuf::from(beside);
    let locked = File::create(&beside)
        .with_context(|| format!("cannot make {} for --state", beside.display()))?;
    match locked.try_lock() {
        Ok(()) => Ok(Claim { _locked: locked }),
        Err(TryLockError::WouldBlock) => bail!(
            "another ratekeeper keeps its counters in {}; stop it first, or name another file with --state",
            path.display()
        ),
        Err(TryLockError::Error(error)) => {
            Err(error).with_context(|| format!("cannot lock {} for --state", beside.display()))
        }
    }
}

/// Loads the counters kept at `path` into `store`, and answers the seed they were named with; [`None`] where there is
/// no file yet. A file that is damaged is put aside and starts nothing: serving without yesterday's counters is better
/// than not serving.
///
/// # Errors
/// The file is there and cannot be read.
pub(crate) fn load(store: &MemoryStore, path: &Path) -> Result<Option<Seed>> {
    match store.load_file(path, Clock::new().now()) {
        Ok(loaded) => match <[u8; 16]>::try_from(loaded.header.as_slice()) {
            Ok(seed) => {
                info!(counters = loaded.counters, path = %path.display(), "counters were loaded");
                Ok(Some(Seed::from_bytes(seed)))
            }
            Err(_) => {
                store.clear();
                put_aside(path, "the state file has no seed");
                Ok(None)
            }
        },
        Err(LoadError::Io(error)) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(LoadError::NotAStateFile) => bail!(
            "{} is not a file that counters were saved to; name another with --state, it is overwritten",
            path.display()
        ),
        Err(LoadError::Io(error)) => {
            Err(error).with_context(|| format!("cannot read {} (--state)", path.display()))
        }
        Err(error) => {
            put_aside(path, &error.to_string());
            Ok(None)
        }
    }
}

/// The next save would overwrite the file; whoever wants to know what happened to it should find it.
fn put_aside(path: &Path, why: &str) {
    let mut aside = path.as_os_str().to_owned();
    aside.push(".damaged");
    let kept = std::fs::rename(path, &aside).is_ok();
    let aside = PathBuf::from(aside);
    warn!(why, kept, aside = %aside.display(), "the kept counters cannot be used; every counter starts afresh");
}

/// Saves a limiter's counters until it is told to finish.
pub(crate) struct Saver {
    stop: oneshot::Sender<()>,
    task: JoinHandle<()>,
}

impl Saver {
    /// Saves every ten seconds from now on; must be called in a runtime.
    pub(crate) fn start(limiter: Arc<Limiter<NodeStore>>, path: PathBuf) -> Saver {
        let (stop, stopped) = oneshot::channel();
        let task = tokio::spawn(keep_saving(limiter, path, stopped));
        Saver { stop, task }
    }

    /// Saves one last time, after a save that is under way.
    pub(crate) async fn finish(self) {
        drop(self.stop);
        if let Err(error) = self.task.await {
            warn!(%error, "the counters were not saved at the end");
        }
    }
}

async fn keep_saving(
    limiter: Arc<Limiter<NodeStore>>,
    path: PathBuf,
    mut stopped: oneshot::Receiver<()>,
) {
    let mut ticks = interval(EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    ticks.tick().await;
    let mut failing = false;
    loop {
        let last = tokio::select! {
            _ = ticks.tick() => false,
            _ = &mut stopped => true,
        };
        let saved = save(Arc::clone(&limiter), path.clone()).await;
        // Said when it begins and when it ends, not every ten seconds.
        match &saved {
            Err(error) if last || !failing => {
                warn!(%error, path = %path.display(), "the counters cannot be saved");
            }
            Ok(()) if failing => info!(path = %path.display(), "the counters are saved again"),
            _ => {}
        }
        failing = saved.is_err();
        if last {
            return;
        }
    }
}

async fn save(limiter: Arc<Limiter<NodeStore>>, path: PathBuf) -> io::Result<()> {
    let saving = spawn_blocking(move || {
        let now = limiter.clock().now();
        let Some(store) = limiter.store().memory() else {
            return Ok(());
        };
        store
            .save_file(&path, &limiter.seed().to_bytes(), now)
            .map(drop)
    });
    saving
        .await
        .unwrap_or_else(|error| Err(io::Error::other(error)))
}
