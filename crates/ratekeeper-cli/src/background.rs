//! Background work beside the server, which goes on after a mistake of ours.

use ratekeeper_server::MaintenanceTask;
use std::future::Future;
use std::sync::Arc;
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// Work that goes on until this is dropped.
pub(crate) struct Background(JoinHandle<()>);

impl Background {
    /// Does what `begin` begins, and begins it again if it panics or ends.
    pub(crate) fn start<F>(
        task: Arc<MaintenanceTask>,
        begin: impl FnMut() -> F + Send + 'static,
    ) -> Self
    where
        F: Future<Output = ()> + Send + 'static,
    {
        Self(tokio::spawn(async move { task.keep(begin, || {}).await }))
    }

    /// Does what `begin` begins until it ends, and begins it again if it panics.
    pub(crate) fn until_done<F>(
        task: Arc<MaintenanceTask>,
        begin: impl FnMut() -> F + Send + 'static,
    ) -> Self
    where
        F: Future<Output = ()> + Send + 'static,
    {
        Self(tokio::spawn(async move { task.until_done(begin).await }))
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Tells work to finish, by ending.
pub(crate) type Stopped = watch::Receiver<()>;

/// Work that goes on until it is told to finish.
pub(crate) struct Finishing {
    stop: watch::Sender<()>,
    task: JoinHandle<()>,
}

impl Finishing {
    /// Does what `begin` begins, and begins it again if it panics.
    pub(crate) fn start<F>(
        task: Arc<MaintenanceTask>,
        mut begin: impl FnMut(Stopped) -> F + Send + 'static,
    ) -> Self
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let (stop, stopped) = watch::channel(());
        let task = tokio::spawn(async move {
            task.until_done(|| begin(stopped.clone())).await;
        });
        Self { stop, task }
    }

    /// Tells it to finish, and waits until it has.
    pub(crate) async fn finish(self) {
        drop(self.stop);
        // It does not panic, since its work is begun again then.
        let _ = self.task.await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::time::Duration;
    use tokio::sync::mpsc;
    use tokio::time::timeout;

    /// The longest that a test waits.
    const PATIENCE: Duration = Duration::from_secs(60);

    #[tokio::test]
    async fn work_that_panics_is_begun_again_and_counted() {
        let task = Arc::new(MaintenanceTask::new("work"));
        let (begun, mut beginnings) = mpsc::channel(8);
        let mut times = 0;
        let background = Background::start(Arc::clone(&task), move || {
            times += 1;
            let (time, begun) = (times, begun.clone());
            async move {
                begun.send(time).await.expect("it is read");
                assert!(time > 1, "a mistake of ours");
                std::future::pending().await
            }
        });
        for time in [1, 2] {
            let next = timeout(PATIENCE, beginnings.recv()).await;
            assert_eq!(next.expect("it goes on"), Some(time));
        }
        assert_eq!(task.failures(), 1);
        drop(background);
    }

    #[tokio::test]
    async fn work_that_panics_before_its_end_is_finished() {
        let task = Arc::new(MaintenanceTask::new("work"));
        let times = Arc::new(AtomicU32::new(0));
        let counted = Arc::clone(&times);
        let work = Finishing::start(Arc::clone(&task), move |mut stopped| {
            let times = Arc::clone(&counted);
            async move {
                // The sender is gone, which says that it is time.
                let _ = stopped.changed().await;
                let time = times.fetch_add(1, Ordering::Relaxed);
                assert!(time > 0, "a mistake of ours");
            }
        });
        let finished = timeout(PATIENCE, work.finish()).await;
        finished.expect("it finishes");
        assert_eq!(times.load(Ordering::Relaxed), 2);
        assert_eq!(task.failures(), 1);
    }
}
