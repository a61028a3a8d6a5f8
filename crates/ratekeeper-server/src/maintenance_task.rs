//! A task that is begun again whenever it ends.

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

/// The state of a task that is begun again if a bug ends it: ending the process would be worse.
///
/// ```
/// use ratekeeper_server::MaintenanceTask;
///
/// # let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
/// # runtime.block_on(async {
/// let counting = MaintenanceTask::new("counting");
/// counting.until_done(|| async {}).await;
/// assert_eq!(counting.failures(), 0);
/// # });
/// ```
#[derive(Debug)]
pub struct MaintenanceTask {
    name: &'static str,
    failures: AtomicU64,
}

impl MaintenanceTask {
    /// A task that has not failed yet; `name` is for the log, `/readyz` and a metric.
    #[must_use]
    pub const fn new(name: &'static str) -> Self {
        Self {
            name,
            failures: AtomicU64::new(0),
        }
    }

    /// Its name.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        self.name
    }

    /// The number of times it has ended and been restarted.
    #[must_use]
    pub fn failures(&self) -> u64 {
        self.failures.load(Ordering::Relaxed)
    }

    /// Does what `begin` begins, and begins it again whenever it ends. `ended` is called first.
    pub async fn keep<F>(&self, mut begin: impl FnMut() -> F, ended: impl Fn())
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let mut pause = PAUSE;
        loop {
            let start = Instant::now();
            let why = match run(begin()).await {
                Ok(()) => "it returned".to_owned(),
                Err(why) => why,
            };
            self.failures.fetch_add(1, Ordering::Relaxed);
            ended();
            self.rest(&why, start, &mut pause).await;
        }
    }

    /// Does what `begin` begins until it returns, and begins it again whenever it panics.
    pub async fn until_done<F>(&self, mut begin: impl FnMut() -> F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let mut pause = PAUSE;
        let mut start = Instant::now();
        while let Err(why) = run(begin()).await {
            self.failures.fetch_add(1, Ordering::Relaxed);
            self.rest(&why, start, &mut pause).await;
            start = Instant::now();
        }
    }

    /// Says that the task that began at `start` has ended, and waits until it may be begun again.
    async fn rest(&self, why: &str, start: Instant, pause: &mut Duration) {
        if start.elapsed() > PAUSE_MAX {
            *pause = PAUSE;
        }
        error!(task = self.name, why, again_in = ?pause, "a maintenance task has ended: please report this bug");
        sleep(*pause).await;
        *pause = PAUSE_MAX.min(*pause * 2);
    }
}

/// Runs a task; the error is the reason why it did not return.
async fn run(task: impl Future<Output = ()> + Send + 'static) -> Result<(), String> {
    // A set, so that it ends with us.
    let mut set = JoinSet::new();
    set.spawn(task);
    match set.join_next().await {
        Some(Err(error)) => Err(error.to_string()),
        Some(Ok(())) | None => Ok(()),
    }
}
