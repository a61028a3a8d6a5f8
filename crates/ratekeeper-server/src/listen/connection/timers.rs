//! The timers of one connection.

use std::future::Future;
use std::hash::{BuildHasher, RandomState};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use pin_project_lite::pin_project;
use tokio::time::{Instant, Sleep, sleep_until};

use crate::listen::line::Line;
use crate::listen::stall_check::looks_each;

/// An event that is due.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Ring {
    /// The drain has begun: the connection is told to go. No timer rings for it.
    Leave,
    /// The connection was told to go for the drain, and is checked for requests that keep it open.
    Linger,
    /// The connection has reached its greatest age.
    Old,
    /// The connection is checked for requests, which keep it open.
    Idle,
    /// The first head is due.
    HeadDue,
    /// The connection was told to go, and its grace is over.
    GraceOver,
    /// A silent peer is asked whether it is still there, or its answer is due.
    Ping,
    /// The connection is checked for progress.
    Look(Instant),
}

pin_project! {
    /// The timers of one connection.
    pub(super) struct Timers {
        times: Times,
        // Until the first of all: the timers are polled several times for each request, and each sleep costs
        // a hundred instructions a poll.
        #[pin]
        first: Sleep,
    }
}

impl Timers {
    /// `first_ping` is the time until the first [`Ring::Ping`], if there are to be any.
    pub(super) fn new(line: &Line, first_ping: Option<Duration>) -> Self {
        let bounds = &line.bounds;
        let now = Instant::now();
        Self::until(Times {
            look: Periodic::new(looks_each(bounds), now),
            idle: bounds
                .connection_idle_max
                .map(|idle| Periodic::new(idle, now)),
            age: bounds
                .connection_age_max
                .map(|age| after(now, jittered(age))),
            grace: None,
            head: Some(after(now, bounds.head_timeout)),
            ping: first_ping.map(|wait| after(now, wait)),
            linger: None,
        })
    }

    fn until(times: Times) -> Self {
        Self {
            first: sleep_until(times.first()),
            times,
        }
    }

    /// Records that the connection was told to go, and starts its grace, if that is bounded here.
    pub(super) fn leave(self: Pin<&mut Self>, grace: Option<Duration>) {
        let this = self.project();
        this.times.idle = None;
        this.times.age = None;
        if let Some(grace) = grace {
            this.times.grace = Some(after(Instant::now(), grace));
        }
        this.first.reset(this.times.first());
    }

    /// Has [`Ring::Linger`] ring.
    pub(super) fn linger_after(self: Pin<&mut Self>, wait: Duration) {
        let this = self.project();
        this.times.linger = Some(after(Instant::now(), wait));
        this.first.reset(this.times.first());
    }

    /// Has [`Ring::Ping`] ring again.
    pub(super) fn ping_after(self: Pin<&mut Self>, wait: Duration) {
        let this = self.project();
        this.times.ping = Some(after(Instant::now(), wait.max(WAIT_MIN)));
        this.first.reset(this.times.first());
    }

    /// Returns the next event that is due.
    pub(super) fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Ring> {
        let mut this = self.project();
        loop {
            ready!(this.first.as_mut().poll(cx));
            let ring = this.times.ring(Instant::now());
            this.first.as_mut().reset(this.times.first());
            if let Some(ring) = ring {
                return Poll::Ready(ring);
            }
        }
    }
}

/// The times at which timers ring; those that are off have none.
struct Times {
    look: Periodic,
    idle: Option<Periodic>,
    age: Option<Instant>,
    /// Set once the connection was told to go for another reason than the drain.
    grace: Option<Instant>,
    /// Only of the first head: hyper waits for the protocol as long as it takes, and for further heads no longer than it is
    /// told.
    head: Option<Instant>,
    ping: Option<Instant>,
    /// Set once the connection was told to go for the drain.
    linger: Option<Instant>,
}

impl Times {
    /// The earliest.
    fn first(&self) -> Instant {
        let idle = self.idle.as_ref().map(|idle| idle.next);
        let others = [
            idle,
            self.age,
            self.grace,
            self.head,
            self.ping,
            self.linger,
        ];
        others
            .into_iter()
            .flatten()
            .fold(self.look.next, Instant::min)
    }

    /// The event that is due at `now`, if any; sets its timer again or switches it off.
    fn ring(&mut self, now: Instant) -> Option<Ring> {
        let mut rings = |timer: fn(&mut Self) -> &mut Option<Instant>| {
            timer(self).take_if(|time| *time <= now).is_some()
        };
        if rings(|times| &mut times.head) {
            return Some(Ring::HeadDue);
        }
        if rings(|times| &mut times.age) {
            return Some(Ring::Old);
        }
        if rings(|times| &mut times.grace) {
            return Some(Ring::GraceOver);
        }
        if rings(|times| &mut times.ping) {
            return Some(Ring::Ping);
        }
        if rings(|times| &mut times.linger) {
            return Some(Ring::Linger);
        }
        let idle = self.idle.as_mut().and_then(|idle| idle.ring(now));
        if idle.is_some() {
            return Some(Ring::Idle);
        }
        self.look.ring(now).map(Ring::Look)
    }
}

/// The shortest wait: one of zero would ring without end.
const WAIT_MIN: Duration = Duration::from_millis(1);

/// A timer that rings again and again.
struct Periodic {
    next: Instant,
    period: Duration,
}

impl Periodic {
    /// Rings every `period`, first one `period` from now.
    fn new(period: Duration, now: Instant) -> Self {
        let period = period.max(WAIT_MIN);
        Self {
            next: after(now, period),
            period,
        }
    }

    /// The time at which it was to ring, if that has come; it rings again a whole period from `now`, however late it is.
    fn ring(&mut self, now: Instant) -> Option<Instant> {
        let due = self.next;
        (due <= now).then(|| {
            self.next = after(now, self.period);
            due
        })
    }
}

/// The time `wait` after `now`; a wait too long to be represented ends in a year.
fn after(now: Instant, wait: Duration) -> Instant {
    const YEAR: Duration = Duration::from_secs(365 * 24 * 3_600);
    now.checked_add(wait).unwrap_or_else(|| now + YEAR)
}

/// Varies by up to a tenth, so that connections that were opened together do not all come back
/// together.
fn jittered(age: Duration) -> Duration {
    // The standard library's hasher is seeded for each: random enough for this.
    let random = RandomState::new().hash_one(());
    let share = f64::from(u32::try_from(random >> 32).unwrap_or(0)) / f64::from(u32::MAX);
    age.mul_f64(0.9 + 0.2 * share)
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::pin::pin;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    /// A look each 4 s, an idle check each 10 s, an age of 15 s, a head within 3 s and a ping after 5 s.
    fn times() -> Times {
        let now = Instant::now();
        Times {
            look: Periodic::new(4 * SECOND, now),
            idle: Some(Periodic::new(10 * SECOND, now)),
            age: Some(now + 15 * SECOND),
            grace: None,
            head: Some(now + 3 * SECOND),
            ping: Some(now + 5 * SECOND),
            linger: None,
        }
    }

    /// The name of the next event, and the second in which it came.
    async fn next(timers: &mut Pin<&mut Timers>, start: Instant) -> (char, u64) {
        let ring = poll_fn(|cx| timers.as_mut().poll(cx)).await;
        let name = match ring {
            Ring::Leave => 'd',
            Ring::Linger => 'r',
            Ring::Old => 'o',
            Ring::Idle => 'i',
            Ring::HeadDue => 'h',
            Ring::GraceOver => 'g',
            Ring::Ping => 'p',
            Ring::Look(_) => 'l',
        };
        (name, start.elapsed().as_secs())
    }

    #[tokio::test(start_paused = true)]
    async fn each_timer_rings_when_it_is_due() {
        let start = Instant::now();
        let mut timers = pin!(Timers::until(times()));
        for expected in [
            ('h', 3),
            ('l', 4),
            ('p', 5),
            ('l', 8),
            ('i', 10),
            ('l', 12),
            ('o', 15),
        ] {
            assert_eq!(next(&mut timers, start).await, expected);
        }
        timers.as_mut().leave(Some(3 * SECOND));
        timers.as_mut().ping_after(6 * SECOND);
        timers.as_mut().linger_after(7 * SECOND);
        for expected in [
            ('l', 16),
            ('g', 18),
            ('l', 20),
            ('p', 21),
            ('r', 22),
            ('l', 24),
        ] {
            assert_eq!(next(&mut timers, start).await, expected);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn timers_that_are_late_ring_once_each() {
        let start = Instant::now();
        let mut timers = pin!(Timers::until(times()));
        tokio::time::advance(40 * SECOND).await;
        for expected in [
            ('h', 40),
            ('o', 40),
            ('p', 40),
            ('i', 40),
            ('l', 40),
            ('l', 44),
        ] {
            assert_eq!(next(&mut timers, start).await, expected);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_grace_that_ends_before_all_others_is_waited_for() {
        let start = Instant::now();
        let mut timers = pin!(Timers::until(times()));
        let early =
            async { tokio::time::timeout(SECOND, poll_fn(|cx| timers.as_mut().poll(cx))).await };
        assert!(early.await.is_err());
        timers.as_mut().leave(Some(SECOND));
        assert_eq!(next(&mut timers, start).await, ('g', 2));
    }

    #[test]
    fn ages_are_spread_over_a_fifth() {
        let age = Duration::from_secs(100);
        for _ in 0..100 {
            let jittered = jittered(age).as_secs_f64();
            assert!((89.9..=110.1).contains(&jittered), "{jittered}");
        }
    }
}
