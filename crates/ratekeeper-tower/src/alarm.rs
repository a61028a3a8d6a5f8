//! A timer, accurate to a tenth of a millisecond where that matters.
//!
//! Tokio's timers fire on whole milliseconds. A more exact one sleeps until shortly before its time
//! and leaves the rest to a thread that the whole process shares. The thread starts on first use,
//! and sleeps until the next timer is due.

use std::collections::BTreeMap;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::OnceLock;
use std::task::{Context, Poll, Waker, ready};
use std::thread::Builder;
use std::time::{Duration, Instant as HostInstant};

use parking_lot::{Condvar, Mutex, MutexGuard};
use pin_project_lite::pin_project;
use tokio::time::{Instant, Sleep, sleep_until};

/// The time before an exact timer fires at which the thread takes over: tokio's timer may be a
/// millisecond late, and its task may be scheduled late.
const EARLY: Duration = Duration::from_millis(2);

pin_project! {
    /// Fires once for each time that it is set to.
    #[derive(Debug)]
    pub(crate) struct Alarm {
        at: Instant,
        is_exact: bool,
        #[pin]
        sleep: Sleep,
        // The time and the waker given to the thread, once it was asked.
        rest: Option<(HostInstant, Waker)>,
    }
}

impl Alarm {
    /// A timer for `at`: exact, or on the next whole millisecond.
    pub(crate) fn new(at: Instant, is_exact: bool) -> Self {
        Self {
            at,
            is_exact,
            sleep: sleep_until(begin(at, is_exact)),
            rest: None,
        }
    }

    /// Sets a new time; no effect if it is the same.
    pub(crate) fn set_to(self: Pin<&mut Self>, at: Instant) {
        let this = self.project();
        if *this.at != at {
            *this.at = at;
            *this.rest = None;
            this.sleep.reset(begin(at, *this.is_exact));
        }
    }
}

/// The time until which tokio's timer sleeps.
fn begin(at: Instant, is_exact: bool) -> Instant {
    let earlier = at.checked_sub(EARLY).filter(|_| is_exact);
    earlier.unwrap_or(at)
}

impl Future for Alarm {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let mut this = self.project();
        if let Some((at, waker)) = this.rest {
            // By the thread's clock: tokio's may be paused.
            if *at <= HostInstant::now() {
                return Poll::Ready(());
            }
            if waker.will_wake(cx.waker()) {
                return Poll::Pending;
            }
        } else {
            ready!(this.sleep.as_mut().poll(cx));
        }
        let left = this.at.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Poll::Ready(());
        }
        // This clock is read last, so that an interruption in between makes the timer late rather
        // than early.
        let known = this.rest.take().map(|(at, _)| at);
        let at = known.unwrap_or_else(|| HostInstant::now() + left);
        let Some(thread) = TimerThread::of_process() else {
            *this.is_exact = false;
            this.sleep.as_mut().reset(*this.at);
            return this.sleep.poll(cx);
        };
        thread.wake_at(at, cx.waker().clone());
        *this.rest = Some((at, cx.waker().clone()));
        Poll::Pending
    }
}

/// The thread that waits out the last moments of exact timers. Entries are not removed when a timer
/// is dropped: a spurious wake does no harm, and comes within [`EARLY`].
#[derive(Debug)]
struct TimerThread {
    due: Mutex<Due>,
    /// Signals that a new entry is due before all others.
    sooner: Condvar,
}

#[derive(Debug)]
struct Due {
    wakers: BTreeMap<(HostInstant, u64), Waker>,
    /// Distinguishes entries with the same time.
    added: u64,
}

impl TimerThread {
    /// The process-wide instance, whose thread is started on first use; none if no thread can be
    /// created.
    fn of_process() -> Option<&'static Self> {
        static INSTANCE: TimerThread = TimerThread {
            due: Mutex::new(Due {
                wakers: BTreeMap::new(),
                added: 0,
            }),
            sooner: Condvar::new(),
        };
        static STARTED: OnceLock<bool> = OnceLock::new();
        let start = || {
            let builder = Builder::new().name("ratekeeper-exact".to_owned());
            builder.spawn(|| INSTANCE.run()).is_ok()
        };
        STARTED.get_or_init(start).then_some(&INSTANCE)
    }

    /// Wakes `waker` at that time.
    fn wake_at(&self, at: HostInstant, waker: Waker) {
        let mut due = self.due.lock();
        due.added += 1;
        let key = (at, due.added);
        due.wakers.insert(key, waker);
        let is_first = due.wakers.first_key_value().map(|(first, _)| *first) == Some(key);
        drop(due);
        if is_first {
            self.sooner.notify_one();
        }
    }

    fn run(&self) {
        let mut due = self.due.lock();
        loop {
            let Some(first) = due.wakers.first_entry() else {
                self.sooner.wait(&mut due);
                continue;
            };
            let (at, _) = *first.key();
            if at <= HostInstant::now() {
                let waker = first.remove();
                // It is others' code, whose panic is to stop no other timer of the process.
                let wake = || catch_unwind(AssertUnwindSafe(|| waker.wake()));
                let _ = MutexGuard::unlocked(&mut due, wake);
            } else {
                self.sooner.wait_until(&mut due, at);
            }
        }
    }
}

#[cfg(test)]
mod tests;
