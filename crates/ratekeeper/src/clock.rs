//! The clocks that limiters go by.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use parking_lot::Mutex;
use ratekeeper_core::{Micros, Timestamp};
use ratekeeper_store::boot_time;

use crate::timer;

/// A clock that tests move by hand. Clones are the same clock.
///
/// ```
/// use ratekeeper::{Limit, ManualClock, RateLimiter};
/// use std::time::Duration;
///
/// let clock = ManualClock::new();
/// let limiter = RateLimiter::builder(Limit::per_minute(1)).clock(&clock).build()?;
/// assert!(limiter.check("ada").allowed);
/// assert!(!limiter.check("ada").allowed);
/// clock.advance(Duration::from_secs(60));
/// assert!(limiter.check("ada").allowed);
/// # Ok::<(), ratekeeper::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct ManualClock(Arc<Mutex<Hands>>);

#[derive(Debug)]
struct Hands {
    now: Timestamp,
    alarms: Alarms,
}

impl ManualClock {
    /// A clock that stands at the beginning of the year 2000.
    ///
    /// ```
    /// # use ratekeeper::ManualClock;
    /// assert_eq!(ManualClock::new().now().as_secs(), 946_684_800);
    /// ```
    #[must_use]
    pub fn new() -> Self {
        Self(Arc::new(Mutex::new(Hands {
            now: Timestamp::from_secs(946_684_800),
            alarms: Alarms::default(),
        })))
    }

    /// The time that it shows, since 1970.
    ///
    /// ```
    /// # use ratekeeper::ManualClock;
    /// # use std::time::Duration;
    /// let clock = ManualClock::new();
    /// let start = clock.now();
    /// clock.advance(Duration::from_millis(5));
    /// assert_eq!(clock.now() - start, Duration::from_millis(5));
    /// ```
    #[must_use]
    pub fn now(&self) -> Duration {
        self.timestamp().since(Timestamp::EPOCH).into()
    }

    /// Moves the clock on, and wakes everybody whose wait is over.
    ///
    /// ```
    /// # use ratekeeper::ManualClock;
    /// # use std::time::Duration;
    /// ManualClock::new().advance(Duration::from_secs(60));
    /// ```
    pub fn advance(&self, by: Duration) {
        let to = self.timestamp().after(by.into());
        self.move_to(to);
    }

    /// Puts the clock to a time since 1970, which may be in its past: counters keep the latest time that they have
    /// seen, so that this lets nothing pass twice.
    ///
    /// ```
    /// use ratekeeper::{Limit, ManualClock, RateLimiter};
    /// use std::time::Duration;
    ///
    /// let clock = ManualClock::new();
    /// let limiter = RateLimiter::builder(Limit::per_minute(1)).clock(&clock).build()?;
    /// assert!(limiter.check("ada").allowed);
    /// clock.set(Duration::from_secs(60));
    /// assert!(!limiter.check("ada").allowed);
    /// # Ok::<(), ratekeeper::Error>(())
    /// ```
    pub fn set(&self, to: Duration) {
        self.move_to(Timestamp::EPOCH.after(to.into()));
    }

    fn move_to(&self, to: Timestamp) {
        let mut hands = self.0.lock();
        hands.now = to;
        let due = hands.alarms.take_due(to.as_micros());
        drop(hands);
        due.into_iter().for_each(Waker::wake);
    }

    fn timestamp(&self) -> Timestamp {
        self.0.lock().now
    }
}

impl Default for ManualClock {
    fn default() -> Self {
        Self::new()
    }
}

/// The source of a limiter's time.
#[derive(Clone, Debug)]
pub(crate) enum Clock {
    /// The system's time at the start, plus what has elapsed since then.
    System {
        /// The time of the system when the machine was started.
        booted: Micros,
    },
    Manual(ManualClock),
}

impl Clock {
    pub(crate) fn system() -> Self {
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let now = Micros::from(now.unwrap_or_default());
        Self::System {
            booted: Micros::new(now.get().saturating_sub(boot_time().get())),
        }
    }

    pub(crate) fn now(&self) -> Timestamp {
        match self {
            Self::System { booted } => {
                Timestamp::from_micros(booted.get().saturating_add(boot_time().get()))
            }
            Self::Manual(clock) => clock.timestamp(),
        }
    }

    /// A future that ends after `span`.
    pub(crate) fn sleep(&self, span: Micros) -> Sleep {
        let (source, now) = match self {
            Self::System { .. } => (Source::System, boot_time().get()),
            Self::Manual(clock) => (Source::Manual(clock.clone()), clock.timestamp().as_micros()),
        };
        Sleep {
            source,
            due: now.saturating_add(span.get()),
            id: None,
        }
    }
}

/// The alarms of one clock, by the time at which they go off.
#[derive(Default, Debug)]
pub(crate) struct Alarms {
    pending: BTreeMap<(u64, u64), Waker>,
    made: u64,
}

impl Alarms {
    /// Sets the alarm `id`, a new one if there is none, to wake `waker` when it is `due`.
    pub(crate) fn set(&mut self, due: u64, id: &mut Option<u64>, waker: &Waker) {
        let id = *id.get_or_insert_with(|| {
            self.made += 1;
            self.made
        });
        self.pending.insert((due, id), waker.clone());
    }

    pub(crate) fn cancel(&mut self, due: u64, id: u64) {
        self.pending.remove(&(due, id));
    }

    /// The time of the next one.
    pub(crate) fn next(&self) -> Option<u64> {
        self.pending.first_key_value().map(|((due, _), _)| *due)
    }

    /// Takes out all that are due.
    pub(crate) fn take_due(&mut self, now: u64) -> Vec<Waker> {
        let later = self.pending.split_off(&(now.saturating_add(1), 0));
        let due = std::mem::replace(&mut self.pending, later);
        due.into_values().collect()
    }
}

/// The clock that a sleeper goes by.
#[derive(Debug)]
enum Source {
    /// The boot clock and its [`timer`].
    System,
    Manual(ManualClock),
}

/// A wait for a time. Dropping it takes its alarm away.
#[derive(Debug)]
pub(crate) struct Sleep {
    source: Source,
    due: u64,
    id: Option<u64>,
}

impl Future for Sleep {
    type Output = Result<(), timer::NoThread>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        match &this.source {
            Source::System => {
                if boot_time().get() >= this.due {
                    return Poll::Ready(Ok(()));
                }
                match timer::set(this.due, &mut this.id, cx.waker()) {
                    Ok(()) => Poll::Pending,
                    Err(error) => Poll::Ready(Err(error)),
                }
            }
            Source::Manual(clock) => {
                let mut hands = clock.0.lock();
                if hands.now.as_micros() >= this.due {
                    return Poll::Ready(Ok(()));
                }
                hands.alarms.set(this.due, &mut this.id, cx.waker());
                Poll::Pending
            }
        }
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        let Some(id) = self.id else { return };
        match &self.source {
            Source::System => timer::cancel(self.due, id),
            Source::Manual(clock) => clock.0.lock().alarms.cancel(self.due, id),
        }
    }
}
