//! Spaces requests that wait for the same leaky bucket as evenly as timers allow.
//!
//! The store spaces turns, but timers fire late, and threads are scheduled late. So a request
//! leaves at its turn, but never much sooner after its predecessor's actual departure than turns
//! are apart:
//!
//! ```text
//!  turns        |         |         |         |         |
//!  late timer   |         |     |             |         |
//!  departures   |         |     |        |    |         |     those behind a late one catch up, by little each time
//! ```
//!
//! If requests are later than the distance of turns, as on an overloaded machine, they keep less of
//! it, the later the less: the rate has priority.
//!
//! Only the first request in a bucket's line has a timer; the others are woken when it has left.

use std::collections::{BTreeMap, HashMap};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use parking_lot::Mutex;
use pin_project_lite::pin_project;
use ratekeeper_store::CounterKey;
use smallvec::SmallVec;
use tokio::time::Instant;

use crate::alarm::Alarm;

/// Turns closer than this are not spaced but served in bunches: no timer fires as often.
const SPACED_LEAST: Duration = Duration::from_micros(400);

/// Turns closer than this are kept exactly; of longer distances a millisecond is a small part.
const EXACT_BELOW: Duration = Duration::from_millis(30);

/// The least share of the turns' distance between two departures, in percent: behind a late
/// request, each departure catches up by the rest.
const KEPT_PERCENT: u32 = 92;

/// The most lateness with which a line keeps all of that: the distance of turns, or the usual
/// lateness of timers and threads.
const LATE_MOST: Duration = Duration::from_millis(4);

/// Time after which the first request no longer blocks the line, because its task is stuck.
const PATIENCE: Duration = Duration::from_millis(50);

/// The most requests to wake at a time in a late line.
const WOKEN_MOST: usize = 8;

/// The number of lines from which idle ones are swept.
const SWEPT_FROM: usize = 64;

/// The lines of waiting requests, one for each bucket.
#[derive(Debug, Default)]
pub(crate) struct Pacer(Mutex<Lines>);

#[derive(Debug, Default)]
struct Lines {
    by_bucket: HashMap<CounterKey, Line>,
    /// Distinguishes requests with the same turn.
    joined: u64,
    /// The number of lines at which idle ones are swept next.
    swept_at: usize,
}

/// The requests that wait for one bucket.
#[derive(Debug, Default)]
struct Line {
    /// Ordered by turn; with the wakers of those that were not first when last polled.
    waiting: BTreeMap<Position, Option<Waker>>,
    /// The earliest departure of the next one.
    open_at: Option<Instant>,
}

/// A position in a line: a turn, and a unique number.
type Position = (Instant, u64);

/// The answer to a request that wants to leave.
enum Leave {
    Now,
    At(Instant),
    /// Others are before it; look again at this time at the latest.
    Behind(Instant),
}

impl Line {
    /// Lets the request at `position` leave if it may: it is then out of the line, and its successor
    /// is the one to wake.
    fn leave(&mut self, position: Position, span: Duration, now: Instant, waker: &Waker) -> Leave {
        let open_at = self.open_at;
        let may_leave = |turn: Instant| open_at.map_or(turn, |open_at| open_at.max(turn));
        while let Some(first) = self.waiting.first_entry()
            && *first.key() != position
            && may_leave(first.key().0) + PATIENCE < now
        {
            first.remove();
        }
        if let Some((first, _)) = self.waiting.first_key_value()
            && *first < position
        {
            let known = self.waiting.entry(position).or_default();
            if !known.as_ref().is_some_and(|known| known.will_wake(waker)) {
                *known = Some(waker.clone());
            }
            return Leave::Behind(position.0.max(now) + PATIENCE + span);
        }
        let at = may_leave(position.0);
        if now < at {
            self.waiting.insert(position, None);
            return Leave::At(at);
        }
        self.open_at = Some(now + kept(span, now.saturating_duration_since(position.0)));
        Leave::Now
    }

    /// Removes the request at `position`; returns the wakers of the first one now, and of those that
    /// are due.
    fn remove(&mut self, position: Position) -> SmallVec<[Waker; 1]> {
        self.waiting.remove(&position);
        let now = Instant::now();
        let next = self.waiting.iter_mut().take(WOKEN_MOST).enumerate();
        let next = next.take_while(|(number, ((turn, _), _))| *number == 0 || *turn <= now);
        next.filter_map(|(_, (_, waker))| waker.take()).collect()
    }

    fn is_idle(&self, now: Instant) -> bool {
        self.waiting.is_empty() && self.open_at.is_none_or(|open_at| open_at <= now)
    }
}

/// The least interval after a departure that was `late`, if turns are `span` apart.
fn kept(span: Duration, late: Duration) -> Duration {
    let kept = span * KEPT_PERCENT / 100;
    let late_most = span.max(LATE_MOST);
    match late > late_most {
        true => kept.mul_f64(late_most.as_secs_f64() / late.as_secs_f64()),
        false => kept,
    }
}

impl Lines {
    fn line(&mut self, bucket: CounterKey) -> &mut Line {
        if self.by_bucket.len() >= self.swept_at && !self.by_bucket.contains_key(&bucket) {
            let now = Instant::now();
            self.by_bucket.retain(|_, line| !line.is_idle(now));
            self.swept_at = (2 * self.by_bucket.len()).max(SWEPT_FROM);
        }
        self.by_bucket.entry(bucket).or_default()
    }
}

/// A request's position in a line, until it is dropped.
#[derive(Debug)]
struct Waiter {
    pacer: Arc<Pacer>,
    bucket: CounterKey,
    position: Position,
    span: Duration,
}

impl Waiter {
    fn new(pacer: &Arc<Pacer>, bucket: CounterKey, turn: Instant, span: Duration) -> Self {
        let mut lines = pacer.0.lock();
        lines.joined += 1;
        let position = (turn, lines.joined);
        lines.line(bucket).waiting.insert(position, None);
        drop(lines);
        Self {
            pacer: Arc::clone(pacer),
            bucket,
            position,
            span,
        }
    }

    fn leave(&self, now: Instant, waker: &Waker) -> Leave {
        let mut lines = self.pacer.0.lock();
        let line = lines.line(self.bucket);
        line.leave(self.position, self.span, now, waker)
    }
}

impl Drop for Waiter {
    fn drop(&mut self) {
        let mut lines = self.pacer.0.lock();
        let Some(line) = lines.by_bucket.get_mut(&self.bucket) else {
            return;
        };
        let next = line.remove(self.position);
        // The next request's turn is a span after this one. Only lateness beyond that has to be
        // remembered.
        let is_kept = line
            .open_at
            .is_some_and(|open_at| open_at > self.position.0 + self.span);
        if line.waiting.is_empty() && !is_kept {
            lines.by_bucket.remove(&self.bucket);
        }
        drop(lines);
        next.into_iter().for_each(Waker::wake);
    }
}

pin_project! {
    /// Waits until a request may leave.
    #[derive(Debug)]
    pub(crate) struct Paced {
        // None if the bucket is not known, or turns follow each other too fast.
        waiter: Option<Waiter>,
        #[pin]
        alarm: Alarm,
    }
}

impl Paced {
    /// A request whose turn in `bucket` comes at that time, `span` before the next one.
    pub(crate) fn new(
        pacer: &Arc<Pacer>,
        bucket: Option<CounterKey>,
        turn: Instant,
        span: Duration,
    ) -> Self {
        let bucket = bucket.filter(|_| span >= SPACED_LEAST);
        let is_exact = bucket.is_some() && span < EXACT_BELOW;
        Self {
            waiter: bucket.map(|bucket| Waiter::new(pacer, bucket, turn, span)),
            alarm: Alarm::new(turn, is_exact),
        }
    }
}

impl Future for Paced {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let mut this = self.project();
        let Some(waiter) = this.waiter else {
            return this.alarm.poll(cx);
        };
        let mut now = Instant::now();
        loop {
            let at = match waiter.leave(now, cx.waker()) {
                Leave::Now => return Poll::Ready(()),
                Leave::At(at) | Leave::Behind(at) => at,
            };
            this.alarm.as_mut().set_to(at);
            ready!(this.alarm.as_mut().poll(cx));
            // The timer has fired: with a paused clock, as in tests, its time counts.
            now = Instant::now().max(at);
        }
    }
}

#[cfg(test)]
mod tests;
