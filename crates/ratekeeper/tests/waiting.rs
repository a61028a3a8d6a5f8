//! Waiting for a turn: fair, bounded, and given up without a trace.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use ratekeeper::{Checked, Limit, ManualClock, RateLimiter, RateLimiterBuilder, WaitError};
use ratekeeper_testkit::process::eventually;

type Turn<'l> = Pin<Box<dyn Future<Output = Result<Checked, WaitError>> + Send + 'l>>;

const SECOND: Duration = Duration::from_secs(1);

fn limiter(
    build: impl FnOnce(RateLimiterBuilder) -> RateLimiterBuilder,
) -> (RateLimiter, ManualClock) {
    let clock = ManualClock::new();
    let builder = build(RateLimiter::builder(Limit::per_second(1)).clock(&clock));
    (builder.build().expect("a valid limit"), clock)
}

fn poll(turn: &mut Turn<'_>) -> Poll<Result<Checked, WaitError>> {
    turn.as_mut().poll(&mut Context::from_waker(Waker::noop()))
}

fn passes(turn: &mut Turn<'_>) -> bool {
    matches!(poll(turn), Poll::Ready(Ok(answer)) if answer.allowed)
}

#[test]
fn whoever_comes_first_goes_first() {
    let (limiter, clock) = limiter(|builder| builder);
    assert!(limiter.check("a").allowed);
    let mut turns: Vec<Turn<'_>> = (0..4)
        .map(|_| Box::pin(limiter.until_allowed("a")) as _)
        .collect();
    for turn in &mut turns {
        assert!(poll(turn).is_pending());
    }
    for first in 0..4 {
        clock.advance(SECOND - Duration::from_micros(1));
        // The last asks first, and has to wait all the same.
        assert!(
            turns[first..]
                .iter_mut()
                .rev()
                .all(|turn| poll(turn).is_pending())
        );
        clock.advance(Duration::from_micros(1));
        assert!(
            turns[first + 1..]
                .iter_mut()
                .rev()
                .all(|turn| poll(turn).is_pending())
        );
        assert!(passes(&mut turns[first]), "turn {first}");
        turns[first] = Box::pin(std::future::pending());
    }
}

#[test]
fn keys_do_not_wait_for_each_other() {
    let (limiter, _clock) = limiter(|builder| builder);
    assert!(limiter.check("a").allowed);
    let mut waits: Turn<'_> = Box::pin(limiter.until_allowed("a"));
    assert!(poll(&mut waits).is_pending());
    let mut other: Turn<'_> = Box::pin(limiter.until_allowed("b"));
    assert!(passes(&mut other));
}

#[test]
fn who_gives_up_leaves_the_line_and_takes_nothing() {
    let (limiter, clock) = limiter(|builder| builder);
    assert!(limiter.check("a").allowed);
    let mut turns: Vec<Turn<'_>> = (0..3)
        .map(|_| Box::pin(limiter.until_allowed("a")) as _)
        .collect();
    for turn in &mut turns {
        assert!(poll(turn).is_pending());
    }
    drop(turns.remove(0));
    clock.advance(SECOND);
    assert!(
        poll(&mut turns[1]).is_pending(),
        "the second of the line is first now"
    );
    assert!(passes(&mut turns[0]));
    drop(turns);
    clock.advance(SECOND);
    assert_eq!(limiter.peek("a").remaining, 1, "it has not been taken");
}

#[test]
fn what_never_fits_is_an_error_at_once() {
    let (limiter, _clock) = limiter(|builder| builder);
    let mut turn: Turn<'_> = Box::pin(limiter.until_allowed_n("a", 2));
    assert_eq!(
        poll(&mut turn),
        Poll::Ready(Err(WaitError::Never { limit: 1 }))
    );
    assert_eq!(limiter.peek("a").remaining, 1);
}

#[test]
fn waiting_is_bounded_in_number_and_time() {
    let (limiter, clock) = limiter(|builder| builder.waiting_max(2).wait_max(SECOND * 3 / 2));
    assert!(limiter.check("a").allowed);
    let mut turns: Vec<Turn<'_>> = (0..3)
        .map(|_| Box::pin(limiter.until_allowed("a")) as _)
        .collect();
    assert!(poll(&mut turns[0]).is_pending());
    assert!(poll(&mut turns[1]).is_pending());
    assert_eq!(poll(&mut turns[2]), Poll::Ready(Err(WaitError::Crowded)));
    clock.advance(SECOND);
    assert!(passes(&mut turns[0]));
    // It would pass after two seconds, half a second too late.
    let late = poll(&mut turns[1]);
    assert_eq!(late, Poll::Ready(Err(WaitError::TooLong { wait: SECOND })));
    assert!(!limiter.check("a").allowed);
    // Behind another in line, the time is unknown; the bound holds all the same.
    let mut first: Turn<'_> = Box::pin(limiter.until_allowed("a"));
    let mut second: Turn<'_> = Box::pin(limiter.until_allowed("a"));
    assert!(poll(&mut first).is_pending() && poll(&mut second).is_pending());
    clock.advance(SECOND * 3 / 2);
    let wait = SECOND * 3 / 2;
    assert_eq!(
        poll(&mut second),
        Poll::Ready(Err(WaitError::TooLong { wait }))
    );
}

#[test]
fn what_is_given_back_is_taken_at_once() {
    let (limiter, _clock) = limiter(|builder| builder);
    assert!(limiter.check("a").allowed);
    let mut turn: Turn<'_> = Box::pin(limiter.until_allowed("a"));
    assert!(poll(&mut turn).is_pending());
    limiter.refund("a", 1);
    assert!(passes(&mut turn));
}

#[tokio::test]
async fn the_clock_of_the_system_wakes_in_any_runtime() {
    let limit = Limit::new(1, Duration::from_millis(20));
    let limiter = RateLimiter::keyed(limit).expect("a valid limit");
    let start = std::time::Instant::now();
    let turns = (0..5).map(|_| {
        let limiter = limiter.clone();
        tokio::spawn(async move { limiter.until_allowed("a").await })
    });
    for turn in turns.collect::<Vec<_>>() {
        assert!(turn.await.expect("it ends").is_ok());
    }
    assert!(
        start.elapsed() >= Duration::from_millis(79),
        "{:?}",
        start.elapsed()
    );
}

/// A waker that notes that it was called, and may fail.
#[derive(Default)]
struct Called {
    is_called: AtomicBool,
    panics: bool,
}

impl Wake for Called {
    fn wake(self: Arc<Self>) {
        self.is_called.store(true, Ordering::Release);
        assert!(!self.panics, "wakers are others' code");
    }
}

#[test]
fn a_waker_that_panics_keeps_no_other_from_being_called() {
    let limit = Limit::new(1, Duration::from_millis(20));
    let limiter = RateLimiter::keyed(limit).expect("a valid limit");
    for panics in [true, false] {
        limiter.check("a");
        let called = Arc::new(Called {
            panics,
            ..Called::default()
        });
        let waker = Waker::from(Arc::clone(&called));
        let mut turn: Turn<'_> = Box::pin(limiter.until_allowed("a"));
        let polled = turn.as_mut().poll(&mut Context::from_waker(&waker));
        // On a slow machine its turn has come by now, and there is nobody to wake.
        if polled.is_pending() {
            let is_called = || called.is_called.load(Ordering::Acquire);
            eventually("its turn comes", is_called);
        }
    }
}

#[tokio::test]
async fn a_clock_that_is_moved_wakes_tasks() {
    let (limiter, clock) = limiter(|builder| builder);
    assert!(limiter.check("a").allowed);
    let waiting = limiter.clone();
    let turn = tokio::spawn(async move { waiting.until_allowed("a").await });
    tokio::task::yield_now().await;
    clock.advance(SECOND);
    assert!(turn.await.expect("it ends").is_ok());
}
