//! Exchanges whose clients are gone, while their upstreams may still be at work.

use std::future::Future;
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::time::timeout;

/// The exchanges of one upstream whose clients are gone: each is a task that holds its slot and permits, so there are never
/// more than slots. Clones share them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Abandoned {
    count: watch::Sender<usize>,
    /// True once the gateway waits for them no longer.
    is_cut: watch::Sender<bool>,
}

/// One of them, counted until dropped.
struct Counted(watch::Sender<usize>);

impl Counted {
    fn new(count: &watch::Sender<usize>) -> Self {
        count.send_modify(|count| *count += 1);
        Self(count.clone())
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.send_modify(|count| *count -= 1);
    }
}

impl Abandoned {
    /// The number of them.
    pub(crate) fn count(&self) -> usize {
        *self.count.borrow()
    }

    /// Goes on with `rest`, which holds what the exchange holds, in a task of its own. Once the gateway waits no longer, or
    /// outside a runtime, it is dropped instead.
    pub(crate) fn go_on(&self, rest: impl Future<Output = ()> + Send + 'static) {
        let Ok(runtime) = Handle::try_current() else {
            return;
        };
        let mut is_cut = self.is_cut.subscribe();
        if *is_cut.borrow() {
            return;
        }
        let counted = Counted::new(&self.count);
        runtime.spawn(async move {
            tokio::select! {
                () = rest => {}
                _ = is_cut.wait_for(|is_cut| *is_cut) => {}
            }
            drop(counted);
        });
    }

    /// Waits until there are none, for at most `patience`; then those that are left are cut off. Returns how many were.
    pub(crate) async fn settle(&self, patience: Duration) -> usize {
        let mut count = self.count.subscribe();
        if timeout(patience, count.wait_for(|count| *count == 0))
            .await
            .is_ok()
        {
            return 0;
        }
        let cut = self.count();
        self.is_cut.send_replace(true);
        cut
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use tokio::sync::oneshot;
    use tokio::time::Instant;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn they_are_waited_for_and_then_cut_off() {
        const SECOND: Duration = Duration::from_secs(1);
        let abandoned = Abandoned::default();
        assert_eq!(abandoned.settle(SECOND).await, 0);
        abandoned.go_on(tokio::time::sleep(5 * SECOND));
        let begun = Instant::now();
        assert_eq!(abandoned.settle(10 * SECOND).await, 0);
        assert_eq!(begun.elapsed(), 5 * SECOND);
        let (held, freed) = oneshot::channel::<()>();
        abandoned.go_on(async move {
            let _held = held;
            pending().await
        });
        assert_eq!(abandoned.count(), 1);
        assert_eq!(abandoned.settle(10 * SECOND).await, 1);
        assert!(freed.await.is_err(), "what it held is free");
        abandoned.go_on(pending());
        assert_eq!(abandoned.count(), 0, "none begins any more");
    }
}
