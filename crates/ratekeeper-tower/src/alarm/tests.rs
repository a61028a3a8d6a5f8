use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Wake;

use ratekeeper_testkit::process::eventually;
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::*;

/// The most that a timer may be late on a slow machine.
const PATIENCE: Duration = Duration::from_secs(30);

/// Records if it was woken.
#[derive(Default)]
struct Bed(AtomicBool);

impl Wake for Bed {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Release);
    }
}

/// A timer for 5 ms from now, already handed to the thread.
async fn on_the_timer_thread() -> Pin<Box<Alarm>> {
    let mut alarm = Box::pin(Alarm::new(Instant::now() + Duration::from_millis(5), true));
    // Tokio's timer wakes it before the time; on a very slow machine it has already fired.
    poll_fn(|cx| match alarm.as_mut().poll(cx) {
        Poll::Pending if alarm.rest.is_none() => Poll::Pending,
        _ => Poll::Ready(()),
    })
    .await;
    alarm
}

#[tokio::test]
async fn an_exact_timer_fires_not_before_its_time() {
    for millis in [0, 1, 3, 5, 8] {
        let at = Instant::now() + Duration::from_millis(millis);
        let rung = timeout(PATIENCE, Alarm::new(at, true)).await;
        assert!(rung.is_ok(), "in {millis} ms it never rang");
        assert!(Instant::now() >= at, "in {millis} ms it rang too soon");
    }
}

#[tokio::test]
async fn a_timer_that_is_reset_on_the_timer_thread_fires_at_the_new_time() {
    let mut alarm = on_the_timer_thread().await;
    let later = Instant::now() + Duration::from_millis(20);
    alarm.as_mut().set_to(later);
    let rung = timeout(PATIENCE, alarm).await;
    assert!(rung.is_ok(), "it never rang");
    assert!(Instant::now() >= later, "it rang at its first time");
}

#[tokio::test]
async fn the_last_poller_is_woken() {
    let mut alarm = on_the_timer_thread().await;
    let bed = Arc::new(Bed::default());
    let waker = Waker::from(Arc::clone(&bed));
    let polled = alarm.as_mut().poll(&mut Context::from_waker(&waker));
    // On a slow machine it has fired by now, and there is no task to wake.
    if polled.is_pending() {
        eventually("it wakes", || bed.0.load(Ordering::Acquire));
    }
    assert!(timeout(PATIENCE, alarm).await.is_ok(), "it never rang");
}

/// A waker whose task does away with all.
struct Panics;

impl Wake for Panics {
    fn wake(self: Arc<Self>) {
        panic!("a waker is others' code");
    }
}

#[tokio::test]
async fn a_waker_that_panics_ends_no_other_timer() {
    let thread = TimerThread::of_process().expect("a thread can be made");
    let now = HostInstant::now();
    thread.wake_at(now, Waker::from(Arc::new(Panics)));
    let bed = Arc::new(Bed::default());
    thread.wake_at(
        now + Duration::from_millis(1),
        Waker::from(Arc::clone(&bed)),
    );
    eventually("it wakes", || bed.0.load(Ordering::Acquire));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_of_many_timers_at_once_fires() {
    let start = Instant::now();
    let mut alarms = JoinSet::new();
    for number in 0..200_u32 {
        // Two of each time, in mixed order.
        let at =
            start + Duration::from_micros(3_000) + Duration::from_micros(40) * (number * 37 % 100);
        alarms.spawn(async move {
            Alarm::new(at, true).await;
            assert!(Instant::now() >= at, "number {number} rang too soon");
        });
    }
    let rung = timeout(PATIENCE, alarms.join_all()).await;
    assert_eq!(rung.expect("all of them ring").len(), 200);
}
