//! Saving counters while they are used.

use super::lock::{Claim, ClaimError};
use super::{State, make_folder};
use ratekeeper_limiter::Limiter;
use ratekeeper_stores::Stores;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::task::{JoinHandle, spawn_blocking};
use tokio::time::{MissedTickBehavior, interval};
use tracing::{info, warn};

/// The time between two saves, and so the most that a crash may lose.
const EVERY: Duration = Duration::from_secs(10);

/// Of saves that fail in a row, one in this many is logged: one every ten minutes.
const LOGGED_EVERY: u64 = 60;

/// Saves a limiter's counters until it is told to finish.
pub(crate) struct Saver {
    stop: oneshot::Sender<()>,
    task: JoinHandle<()>,
}

impl Saver {
    /// Saves now, so that a place that cannot be written is known at once, and every ten seconds; must be called in a
    /// runtime.
    pub(crate) fn start(limiter: Arc<Limiter<Stores>>, state: State) -> Saver {
        let (stop, stopped) = oneshot::channel();
        let task = tokio::spawn(keep_saving(limiter, Arc::new(state), stopped));
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
    limiter: Arc<Limiter<Stores>>,
    state: Arc<State>,
    mut stopped: oneshot::Receiver<()>,
) {
    let mut ticks = interval(EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        let last = tokio::select! {
            _ = ticks.tick() => false,
            _ = &mut stopped => true,
        };
        let (saving, limiter) = (Arc::clone(&state), Arc::clone(&limiter));
        let saved = spawn_blocking(move || saving.save(&limiter)).await;
        let saved = saved.unwrap_or_else(|error| Err(SaveError::Io(io::Error::other(error))));
        state.tell(saved, last);
        if last {
            return;
        }
    }
}

/// The reason why counters were not saved.
#[derive(Debug, thiserror::Error)]
enum SaveError {
    #[error(transparent)]
    Claim(#[from] ClaimError),
    #[error(transparent)]
    Io(#[from] io::Error),
}

impl State {
    fn save(&self, limiter: &Limiter<Stores>) -> Result<(), SaveError> {
        let Some(store) = limiter.store().memory() else {
            return Ok(());
        };
        make_folder(&self.path)?;
        let mut claim = self.claim.lock();
        if !claim.holds() {
            // Its folder was deleted, or somebody tidied up: another process could claim the file by now.
            *claim = Claim::new(&self.path)?;
        }
        let now = limiter.clock().now();
        store.save_file(&self.path, &limiter.hash_key().to_bytes(), now)?;
        Ok(())
    }

    /// Counts a save, and logs the first failure of a row, now and then a later one, the last one, and the recovery.
    fn tell(&self, saved: Result<(), SaveError>, last: bool) {
        let path = self.path.display();
        match saved {
            Ok(()) => {
                if self.report.saved() {
                    info!(%path, "the counters are saved again");
                }
            }
            Err(error) => {
                let times = self.report.failed(error.to_string());
                if last || times % LOGGED_EVERY == 1 {
                    warn!(%error, times, %path, "the counters cannot be saved");
                }
            }
        }
    }
}
