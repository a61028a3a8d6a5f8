//! Background work of a store, which goes on after a mistake of ours.

use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures_util::FutureExt;
use tokio::runtime::Handle;
use tokio::task::JoinHandle;
use tokio::time::sleep;
use tracing::error;

/// The pause before work is begun again.
const PAUSE: Duration = Duration::from_secs(1);

/// The runtime of background work, and the number of times that some has panicked.
#[derive(Clone, Debug)]
pub(crate) struct Background {
    runtime: Handle,
    failures: Arc<AtomicU64>,
}

impl Background {
    pub(crate) fn new(runtime: Handle) -> Self {
        Self {
            runtime,
            failures: Arc::default(),
        }
    }

    pub(crate) const fn runtime(&self) -> &Handle {
        &self.runtime
    }

    /// The number of times that work has panicked and was begun again.
    pub(crate) fn failures(&self) -> u64 {
        self.failures.load(Ordering::Relaxed)
    }

    /// Does what `begin` begins in a task of its own, until it returns.
    pub(crate) fn spawn<F>(
        &self,
        work: &'static str,
        begin: impl FnMut() -> F + Send + 'static,
    ) -> JoinHandle<()>
    where
        F: Future<Output = ()> + Send + 'static,
    {
        self.runtime.spawn(self.clone().until_done(work, begin))
    }

    /// Does what `begin` begins until it returns, and begins it again whenever it panics.
    pub(crate) async fn until_done<F>(self, work: &'static str, mut begin: impl FnMut() -> F)
    where
        F: Future<Output = ()>,
    {
        while self.survive(work, begin()).await.is_none() {
            sleep(PAUSE).await;
        }
    }

    /// Does `task`; [`None`] if it panics, which is told and counted.
    pub(crate) async fn survive<T>(
        &self,
        work: &'static str,
        task: impl Future<Output = T>,
    ) -> Option<T> {
        // What it shares is under locks that are not poisoned, each held for one step.
        let done = AssertUnwindSafe(task).catch_unwind().await;
        if done.is_err() {
            self.failures.fetch_add(1, Ordering::Relaxed);
            error!(
                work,
                "background work of a store has ended, and is begun again: please report this bug"
            );
        }
        done.ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn work_goes_on_after_a_panic() {
        let background = Background::new(Handle::current());
        let mut times = 0;
        let work = background.spawn("work", move || {
            times += 1;
            async move { assert_eq!(times, 3, "a mistake of ours") }
        });
        work.await.expect("it returns at last");
        assert_eq!(background.failures(), 2);
    }
}
