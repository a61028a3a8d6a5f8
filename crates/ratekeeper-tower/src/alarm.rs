//! A timer that rings on time to a tenth of a millisecond where that counts.
//!
//! Tokio's timers ring on whole milliseconds. One that is to be more exact sleeps until shortly before, and has the rest
//! waited for by a thread that all of the process share: started when it is first needed, and asleep until the next one
//! is due.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::OnceLock;
use std::task::{Context, Poll, Waker, ready};
use std::thread::Builder;
use std::time::{Duration, Instant as HostInstant};

use parking_lot::{Condvar, Mutex, MutexGuard};
use pin_project_lite::pin_project;
use tokio::time::{Instant, Sleep, sleep_until};

/// So long before its time an exact one is handed to the thread: tokio's may be a millisecond late, and late to be heard.
const EARLY: Duration = Duration::from_millis(2);

pin_project! {
    /// Rings once for each time that it is set to.
    #[derive(Debug)]
    pub(crate) struct Alarm {
        at: Instant,
        is_exact: bool,
        #[pin]
        sleep: Sleep,
        // When the thread is to wake whom, once it was asked to.
        rest: Option<(HostInstant, Waker)>,
    }
}

impl Alarm {
    /// An alarm for `at`: exact, or on the next whole millisecond.
    pub(crate) fn new(at: Instant, is_exact: bool) -> Self {
        Self {
            at,
            is_exact,
            sleep: sleep_until(begin(at, is_exact)),
            rest: None,
        }
    }

    /// Sets it to ring at another time, if it is another one.
    pub(crate) fn set_to(self: Pin<&mut Self>, at: Instant) {
        let this = self.project();
        if *this.at != at {
            *this.at = at;
            *this.rest = None;
            this.sleep.reset(begin(at, *this.is_exact));
        }
    }
}

/// Until when tokio's timer sleeps.
fn begin(at: Instant, is_exact: bool) -> Instant {
    let earlier = at.checked_sub(EARLY).filter(|_| is_exact);
    earlier.unwrap_or(at)
}

impl Future for Alarm {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let mut this = self.project();
        if let Some((at, waker)) = this.rest {
            // By the clock that the thread goes by: tokio's may stand still.
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
        // This clock is read last: who is interrupted in between is late, and not too soon.
        let known = this.rest.take().map(|(at, _)| at);
        let at = known.unwrap_or_else(|| HostInstant::now() + left);
        let Some(bell) = Bell::of_process() else {
            *this.is_exact = false;
            this.sleep.as_mut().reset(*this.at);
            return this.sleep.poll(cx);
        };
        bell.ring(at, cx.waker().clone());
        *this.rest = Some((at, cx.waker().clone()));
        Poll::Pending
    }
}

/// The thread that waits for the last moments, and whom it is to wake. Nobody is taken out again who is in no need of
/// it: a wake that nobody waits for does no harm, and comes within [`EARLY`].
#[derive(Debug)]
struct Bell {
    due: Mutex<Due>,
    /// That something is due sooner than all else.
    sooner: Condvar,
}

#[derive(Debug)]
struct Due {
    wakers: BTreeMap<(HostInstant, u64), Waker>,
    /// Tells apart what is due at the same time.
    asked: u64,
}

impl Bell {
    /// The bell, whose thread is started now if it was not before; none if there can be no thread.
    fn of_process() -> Option<&'static Self> {
        static BELL: Bell = Bell {
            due: Mutex::new(Due {
                wakers: BTreeMap::new(),
                asked: 0,
            }),
            sooner: Condvar::new(),
        };
        static STARTED: OnceLock<bool> = OnceLock::new();
        let start = || {
            let thread = Builder::new().name("ratekeeper-bell".to_owned());
            thread.spawn(|| BELL.run()).is_ok()
        };
        STARTED.get_or_init(start).then_some(&BELL)
    }

    /// Has `waker` woken at that time.
    fn ring(&self, at: HostInstant, waker: Waker) {
        let mut due = self.due.lock();
        due.asked += 1;
        let key = (at, due.asked);
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
                MutexGuard::unlocked(&mut due, || waker.wake());
            } else {
                self.sooner.wait_until(&mut due, at);
            }
        }
    }
}

#[cfg(test)]
mod tests;
