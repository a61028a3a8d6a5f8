//! Rounds of a connection's task.
//!
//! A connection to which an answer is handed has its task woken, so that the answer is written. The task would then stand in
//! line behind those of all other connections, whose requests are answered first. So it goes round at once in place of being
//! woken: with one request at a time on each of four connections, that is half as many decisions a second again.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use futures_util::task::AtomicWaker;

/// The most rounds of a task before it lets others run.
const ROUNDS_MAX: usize = 4;

/// Goes round as long as it was woken by what it did itself.
pub(super) struct Rounds {
    wakes: Arc<Wakes>,
    waker: Waker,
}

/// Wakes the task, or keeps in mind that it is to go round again.
#[derive(Default)]
struct Wakes {
    task: AtomicWaker,
    state: AtomicU8,
}

/// The task does not run, and is woken.
const RESTS: u8 = 0;
/// It runs.
const RUNS: u8 = 1;
/// It runs, and goes round again.
const RUNS_AGAIN: u8 = 2;

impl Rounds {
    pub(super) fn new() -> Self {
        let wakes = Arc::<Wakes>::default();
        let waker = Waker::from(Arc::clone(&wakes));
        Self { wakes, waker }
    }

    /// Has `round` run until it is ready, or nothing in it asked for another one.
    pub(super) fn poll<T>(
        &self,
        cx: &mut Context<'_>,
        mut round: impl FnMut(&mut Context<'_>) -> Poll<T>,
    ) -> Poll<T> {
        self.wakes.task.register(cx.waker());
        let mut within = Context::from_waker(&self.waker);
        for _ in 0..ROUNDS_MAX {
            self.wakes.state.store(RUNS, Ordering::Release);
            let outcome = round(&mut within);
            let ended = self.wakes.state.swap(RESTS, Ordering::AcqRel);
            if outcome.is_ready() || ended == RUNS {
                return outcome;
            }
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }
}

impl Wake for Wakes {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        let (success, failure) = (Ordering::AcqRel, Ordering::Acquire);
        let found = self
            .state
            .compare_exchange(RUNS, RUNS_AGAIN, success, failure);
        if found == Err(RESTS) {
            self.task.wake();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use super::*;

    /// Counts how often a task is woken.
    #[derive(Default)]
    struct Count(AtomicUsize);

    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn a_task_that_wakes_itself_goes_round_and_is_woken_by_others() {
        let woken = Arc::new(Count::default());
        let waker = Waker::from(Arc::clone(&woken));
        let mut cx = Context::from_waker(&waker);
        let (rounds, mut ran, mut kept) = (Rounds::new(), 0, None);
        let outcome = rounds.poll(&mut cx, |cx| {
            ran += 1;
            if ran == 1 {
                cx.waker().wake_by_ref();
            }
            kept = Some(cx.waker().clone());
            Poll::<()>::Pending
        });
        assert!(outcome.is_pending());
        assert_eq!((ran, woken.0.load(Ordering::Relaxed)), (2, 0));
        kept.expect("it ran").wake();
        assert_eq!(woken.0.load(Ordering::Relaxed), 1);
    }

    #[test]
    fn a_task_that_always_wakes_itself_lets_others_run() {
        let woken = Arc::new(Count::default());
        let waker = Waker::from(Arc::clone(&woken));
        let (rounds, mut ran) = (Rounds::new(), 0);
        let outcome = rounds.poll(&mut Context::from_waker(&waker), |cx| {
            ran += 1;
            cx.waker().wake_by_ref();
            Poll::<()>::Pending
        });
        assert!(outcome.is_pending());
        assert_eq!((ran, woken.0.load(Ordering::Relaxed)), (ROUNDS_MAX, 1));
    }

    #[test]
    fn what_is_ready_ends_the_rounds() {
        let waker = Waker::noop();
        let outcome = Rounds::new().poll(&mut Context::from_waker(waker), |cx| {
            cx.waker().wake_by_ref();
            Poll::Ready(7)
        });
        assert_eq!(outcome, Poll::Ready(7));
    }
}
