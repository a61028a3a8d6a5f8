//! Requests that wait for the same leaky bucket leave one by one, as evenly as timers allow.
//!
//! The store spaces turns; timers ring late, and threads are late to hear them. So a request leaves at its turn, but
//! never much sooner after the one before it than turns are apart, whenever that one really left:
//!
//! ```text
//!  turns        |         |         |         |         |
//!  late timer   |         |     |             |         |
//!  departures   |         |     |        |    |         |     those behind a late one catch up, by little each time
//! ```
//!
//! Where they are later than turns are apart, as on a machine with too much to do, they keep less of their distance,
//! the later the less: the rate is kept first.
//!
//! Only the first of those that wait for a bucket has a timer to leave by; the others are woken when it has left.

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

/// Turns that are closer than this are not spaced, but left at in bunches: no timer rings as often.
const SPACED_LEAST: Duration = Duration::from_micros(400);

/// Turns that are closer than this are kept exactly; of longer spans a millisecond is a small part.
const EXACT_BELOW: Duration = Duration::from_millis(30);

/// How much of their turns' distance two departures keep at least, in percent: behind a late one there is so much
/// less than a whole one to be caught up with.
const KEPT_PERCENT: u32 = 92;

/// How late a line may be that keeps all of that: as late as turns are apart, or as timers and threads are any day.
const LATE_MOST: Duration = Duration::from_millis(4);

/// After so long the first one is no longer waited for that does not leave at its turn: its task is stuck.
const PATIENCE: Duration = Duration::from_millis(50);

/// So many are woken at a time of those whose turn has come, where the line is late.
const WOKEN_MOST: usize = 8;

/// Lines that nobody stands in are looked for when there are as many as this.
const SWEPT_FROM: usize = 64;

/// The lines of those that wait, one for each bucket.
#[derive(Debug, Default)]
pub(crate) struct Pacer(Mutex<Lines>);

#[derive(Debug, Default)]
struct Lines {
    by_bucket: HashMap<CounterKey, Line>,
    /// Tells apart those that have the same turn.
    joined: u64,
    /// How many lines there may be before idle ones are looked for.
    swept_at: usize,
}

/// Those that wait for one bucket.
#[derive(Debug, Default)]
struct Line {
    /// By their turns; with what wakes those that were not the first when they last looked.
    waiting: BTreeMap<Place, Option<Waker>>,
    /// The earliest that the next one leaves.
    open_at: Option<Instant>,
}

/// A place in a line: a turn, and a number of its own.
type Place = (Instant, u64);

/// Whether one may leave.
enum Leave {
    Now,
    At(Instant),
    /// Others are before it; to be looked at again then at the latest.
    Behind(Instant),
}

impl Line {
    /// Whether whoever is at `place` leaves now; if so, it is out of the line, and next in it is who is woken.
    fn leave(&mut self, place: Place, span: Duration, now: Instant, waker: &Waker) -> Leave {
        let open_at = self.open_at;
        let may_leave = |turn: Instant| open_at.map_or(turn, |open_at| open_at.max(turn));
        while let Some(first) = self.waiting.first_entry()
            && *first.key() != place
            && may_leave(first.key().0) + PATIENCE < now
        {
            first.remove();
        }
        if let Some((first, _)) = self.waiting.first_key_value()
            && *first < place
        {
            let known = self.waiting.entry(place).or_default();
            if !known.as_ref().is_some_and(|known| known.will_wake(waker)) {
                *known = Some(waker.clone());
            }
            return Leave::Behind(place.0.max(now) + PATIENCE + span);
        }
        let at = may_leave(place.0);
        if now < at {
            self.waiting.insert(place, None);
            return Leave::At(at);
        }
        self.open_at = Some(now + kept(span, now.saturating_duration_since(place.0)));
        Leave::Now
    }

    /// Takes whoever is at `place` out, and says who is to be woken: the first now, and those who are due as well.
    fn remove(&mut self, place: Place) -> SmallVec<[Waker; 1]> {
        self.waiting.remove(&place);
        let now = Instant::now();
        let next = self.waiting.iter_mut().take(WOKEN_MOST).enumerate();
        let next = next.take_while(|(number, ((turn, _), _))| *number == 0 || *turn <= now);
        next.filter_map(|(_, (_, waker))| waker.take()).collect()
    }

    fn is_idle(&self, now: Instant) -> bool {
        self.waiting.is_empty() && self.open_at.is_none_or(|open_at| open_at <= now)
    }
}

/// How long after one that left so `late` the next one leaves at the earliest, where turns are `span` apart.
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

/// Where a request stands, until it is dropped.
#[derive(Debug)]
struct Stand {
    pacer: Arc<Pacer>,
    bucket: CounterKey,
    place: Place,
    span: Duration,
}

impl Stand {
    fn new(pacer: &Arc<Pacer>, bucket: CounterKey, turn: Instant, span: Duration) -> Self {
        let mut lines = pacer.0.lock();
        lines.joined += 1;
        let place = (turn, lines.joined);
        lines.line(bucket).waiting.insert(place, None);
        drop(lines);
        Self {
            pacer: Arc::clone(pacer),
            bucket,
            place,
            span,
        }
    }

    fn leave(&self, now: Instant, waker: &Waker) -> Leave {
        let mut lines = self.pacer.0.lock();
        let line = lines.line(self.bucket);
        line.leave(self.place, self.span, now, waker)
    }
}

impl Drop for Stand {
    fn drop(&mut self) {
        let mut lines = self.pacer.0.lock();
        let Some(line) = lines.by_bucket.get_mut(&self.bucket) else {
            return;
        };
        let next = line.remove(self.place);
        // What comes next has a turn a span after this one. Only one that was late is to be remembered for that.
        let is_kept = line
            .open_at
            .is_some_and(|open_at| open_at > self.place.0 + self.span);
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
        // None where the bucket is not known, or turns follow each other too fast.
        stand: Option<Stand>,
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
            stand: bucket.map(|bucket| Stand::new(pacer, bucket, turn, span)),
            alarm: Alarm::new(turn, is_exact),
        }
    }
}

impl Future for Paced {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let mut this = self.project();
        let Some(stand) = this.stand else {
            return this.alarm.poll(cx);
        };
        let mut now = Instant::now();
        loop {
            let at = match stand.leave(now, cx.waker()) {
                Leave::Now => return Poll::Ready(()),
                Leave::At(at) | Leave::Behind(at) => at,
            };
            this.alarm.as_mut().set_to(at);
            ready!(this.alarm.as_mut().poll(cx));
            // It has rung: where time stands still, as in tests, it is what it rang for.
            now = Instant::now().max(at);
        }
    }
}

#[cfg(test)]
mod tests;
