//! The timers of one connection.

use std::future::Future;
use std::hash::{BuildHasher, RandomState};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use pin_project_lite::pin_project;
use tokio::time::{Instant, Interval, MissedTickBehavior, Sleep, interval_at, sleep};

use crate::listen::Protocol;
use crate::listen::line::Line;
use crate::listen::looks::looks_each;

/// An event that is due.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Ring {
    /// The drain has begun: the connection is told to go. No timer rings for it.
    Leave,
    /// The connection has reached its greatest age.
    Old,
    /// The connection is checked for requests, which keep it open.
    Idle,
    /// The first head is due.
    HeadDue,
    /// The connection was told to go, and its grace is over.
    GraceOver,
    /// The connection is checked for progress.
    Look(Instant),
}

pin_project! {
    /// The timers of one connection. Those that are off are not polled, and so cost nothing.
    pub(super) struct Timers {
        look: Interval,
        idle: Option<Interval>,
        #[pin]
        age: Option<Sleep>,
        // Runs once the connection was told to go for another reason than the drain.
        #[pin]
        grace: Option<Sleep>,
        // hyper measures heads once it knows the protocol, and waits for that as long as it takes.
        #[pin]
        head: Option<Sleep>,
        is_leaving: bool,
    }
}

impl Timers {
    pub(super) fn new(line: &Line) -> Self {
        let bounds = &line.bounds;
        let is_unknown = line.protocol != Protocol::Http1;
        Self {
            look: every(looks_each(bounds)),
            idle: bounds.connection_idle_max.map(every),
            age: bounds.connection_age_max.map(|age| sleep(jittered(age))),
            grace: None,
            head: is_unknown.then(|| sleep(bounds.head_timeout)),
            is_leaving: false,
        }
    }

    /// Returns true if the connection was told to go.
    pub(super) const fn is_leaving(&self) -> bool {
        self.is_leaving
    }

    /// Notes that the connection was told to go, and starts its grace, if that is bounded here.
    pub(super) fn leave(self: Pin<&mut Self>, grace: Option<Duration>) {
        let mut this = self.project();
        *this.is_leaving = true;
        *this.idle = None;
        this.age.set(None);
        if let Some(grace) = grace {
            this.grace.set(Some(sleep(grace)));
        }
    }

    /// Returns the next event that is due.
    pub(super) fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Ring> {
        let mut this = self.project();
        let rings = |timer: Pin<&mut Option<Sleep>>, cx: &mut Context<'_>| {
            let timer = timer.as_pin_mut();
            timer.is_some_and(|timer| timer.poll(cx).is_ready())
        };
        if rings(this.head.as_mut(), cx) {
            this.head.set(None);
            return Poll::Ready(Ring::HeadDue);
        }
        if rings(this.age.as_mut(), cx) {
            this.age.set(None);
            return Poll::Ready(Ring::Old);
        }
        if rings(this.grace.as_mut(), cx) {
            this.grace.set(None);
            return Poll::Ready(Ring::GraceOver);
        }
        if let Some(idle) = this.idle
            && idle.poll_tick(cx).is_ready()
        {
            return Poll::Ready(Ring::Idle);
        }
        this.look.poll_tick(cx).map(Ring::Look)
    }
}

/// Rings every `period`, first one `period` from now.
fn every(period: Duration) -> Interval {
    // A period of zero is a panic.
    let period = period.max(Duration::from_millis(1));
    let mut interval = interval_at(Instant::now() + period, period);
    interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
    interval
}

/// Varies by up to a tenth, so that connections that were opened together do not all come back
/// together.
fn jittered(age: Duration) -> Duration {
    // The standard library's hasher is seeded anew for each: random enough for this.
    let random = RandomState::new().hash_one(());
    let share = f64::from(u32::try_from(random >> 32).unwrap_or(0)) / f64::from(u32::MAX);
    age.mul_f64(0.9 + 0.2 * share)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_are_spread_over_a_fifth() {
        let age = Duration::from_secs(100);
        for _ in 0..100 {
            let jittered = jittered(age).as_secs_f64();
            assert!((89.9..=110.1).contains(&jittered), "{jittered}");
        }
    }
}
