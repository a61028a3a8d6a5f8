//! Saving counters while they are used.

use super::lock::{Claim, ClaimError};
use super::{State, make_folder};
use crate::background::{Finishing, Stopped};
use ratekeeper_limiter::Limiter;
use ratekeeper_stores::Stores;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::spawn_blocking;
use tokio::time::{MissedTickBehavior, interval};
use tracing::{info, warn};

/// The time between two saves, and so the most that a crash may lose.
const EVERY: Duration = Duration::from_secs(10);

/// Of saves that fail in a row, one in this many is logged: one every ten minutes.
const LOGGED_EVERY: u64 = 60;

/// Saves a limiter's counters until it is told to finish.
pub(crate) struct Saver(Finishing);

impl Saver {
    /// Saves now, so that a place that cannot be written is known at once, and every ten seconds; must be called in a
    /// runtime.
    pub(crate) fn start(limiter: Arc<Limiter<Stores>>, state: State) -> Saver {
        let (task, state) = (state.report.task(), Arc::new(state));
        Saver(Finishing::start(task, move |stopped| {
            keep_saving(Arc::clone(&limiter), Arc::clone(&state), stopped)
        }))
    }

    /// Saves one last time, after a save that is under way.
    pub(crate) async fn finish(self) {
        self.0.finish().await;
    }
}

async fn keep_saving(limiter: Arc<Limiter<Stores>>, state: Arc<State>, mut stopped: Stopped) {
    let mut ticks = interval(EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        let last = tokio::select! {
            _ = ticks.tick() => false,
            // The sender is gone, which says that it is time.
            _ = stopped.changed() => true,
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
        let snapshot = limiter.snapshot();
        let (key, slots) = (snapshot.hash_key().to_bytes(), snapshot.slots().to_bytes());
        store.save_file(&self.path, &[&key[..], &slots].concat(), now)?;
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

#[cfg(test)]
mod tests {
    use super::*;
    use ratekeeper_limiter::LimiterOptions;
    use ratekeeper_rules::RuleSet;
    use ratekeeper_server::Monitored as _;
    use ratekeeper_store::memory::{MemoryConfig, MemoryStore};
    use ratekeeper_testkit::fragile_log::FragileLog;
    use std::fs;
    use tokio::time::{sleep, timeout};

    /// A log can fail, as anything can.
    #[tokio::test]
    async fn saving_goes_on_after_a_panic() {
        let folder = tempfile::tempdir().expect("a folder");
        let own = folder.path().join("own");
        let path = own.join("state");
        let state = State::claim(&path).expect("it is nobody's");
        fs::remove_dir_all(&own).expect("it is there");
        fs::write(&own, "in the way").expect("there is room");
        let report = state.report();
        let store = MemoryStore::new(MemoryConfig::default()).expect("there is memory");
        let limiter = Limiter::new(RuleSet::default(), store.into(), LimiterOptions::default());
        let _log = FragileLog::panicking_at("the counters cannot be saved");
        let saver = Saver::start(Arc::new(limiter), state);
        let told = async {
            while report.tasks() != [("state", 1)] {
                sleep(Duration::from_millis(10)).await;
            }
        };
        let told = timeout(Duration::from_secs(60), told).await;
        told.expect("it is counted and begun again");
        fs::remove_file(&own).expect("it is there");
        saver.finish().await;
        assert!(path.exists(), "the last save is made");
    }
}
