//! Tasks that are begun again whenever they end.

use std::future::Future;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};
use tracing::error;

/// The pause before a task is begun again; twice as long each time.
const PAUSE: Duration = Duration::from_millis(100);

/// The longest of these pauses. What has run for longer is taken to be well again.
const PAUSE_MAX: Duration = Duration::from_secs(60);

/// The state of all maintenance tasks.
#[derive(Debug)]
pub(crate) struct MaintenanceTasks {
    pub(crate) reloading: MaintenanceTask,
    pub(crate) upkeep: MaintenanceTask,
    /// Tokens, switches and the report that nodes of one quota database share.
    pub(crate) fleet: MaintenanceTask,
}

/// The state of one task.
#[derive(Debug)]
pub(crate) struct MaintenanceTask {
    pub(crate) name: &'static str,
    failures: AtomicU64,
}

impl Default for MaintenanceTasks {
    fn default() -> Self {
        Self {
            reloading: MaintenanceTask::new("reloading"),
            upkeep: MaintenanceTask::new("upkeep"),
            fleet: MaintenanceTask::new("fleet"),
        }
    }
}

impl MaintenanceTasks {
    pub(crate) fn all(&self) -> [&MaintenanceTask; 3] {
        [&self.reloading, &self.upkeep, &self.fleet]
    }
}

impl MaintenanceTask {
    const fn new(name: &'static str) -> Self {
        Self {
            name,
            failures: AtomicU64::new(0),
        }
    }

    /// The number of times it has ended and been restarted.
    pub(crate) fn failures(&self) -> u64 {
        self.failures.load(Ordering::Relaxed)
    }

    /// Does what `begin` begins, and begins it again whenever it ends. `ended` is called first.
    pub(crate) async fn keep<F>(&self, mut begin: impl FnMut() -> F, ended: impl Fn())
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let mut pause = PAUSE;
        loop {
            // A set, so that it ends with us.
            let mut task = JoinSet::new();
            let start = Instant::now();
            task.spawn(begin());
            let why = match task.join_next().await {
                Some(Err(error)) => error.to_string(),
                Some(Ok(())) | None => "it returned".to_owned(),
            };
            self.failures.fetch_add(1, Ordering::Relaxed);
            ended();
            if start.elapsed() > PAUSE_MAX {
                pause = PAUSE;
            }
            error!(task = self.name, why, again_in = ?pause, "a maintenance task has ended: please report this bug");
            sleep(pause).await;
            pause = PAUSE_MAX.min(pause * 2);
        }
    }
}
