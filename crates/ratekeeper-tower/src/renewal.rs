//! Renews permits before their deadline, with one task per runtime for any number of permits.
//!
//! The task starts with the first renewal of its runtime, and sleeps until the next one is due. A
//! permit that is dropped before it is due, as most are, costs two entries in a table and no
//! wake-up.

use std::cell::RefCell;
use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::future::{Future, pending, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::runtime::{Handle, Id};
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};

/// The divisor of the lifetime after which something is renewed.
const RENEWED_AFTER: u32 = 3;

/// The divisor of the lifetime to return for a renewal without an answer: the next ones are a twelfth of it apart, so that
/// seven may be lost.
const UNANSWERED: u32 = 4;

/// The shortest interval between two renewals.
const PAUSE_LEAST: Duration = Duration::from_millis(10);

/// The most renewals in progress in a runtime; others wait.
const UNDER_WAY_MAX: usize = 256;

/// Something held until a deadline, unless it is renewed.
pub trait Renew: Send + Sync + 'static {
    /// Renews it; returns its lifetime from now on, or none if it is lost. If the renewal may have
    /// failed, returns [`Renewal::unanswered`] of its lifetime.
    fn renew(self: Arc<Self>) -> Pin<Box<dyn Future<Output = Option<Duration>> + Send>>;
}

/// Keeps something renewed until dropped.
#[derive(Debug)]
pub struct Renewal {
    schedule: Arc<Schedule>,
    number: u64,
}

impl Renewal {
    /// Starts to renew `held`, which otherwise ends in `expires_after`. None outside a runtime,
    /// where it cannot be renewed.
    #[must_use]
    pub fn begin(held: Arc<dyn Renew>, expires_after: Duration) -> Option<Self> {
        let runtime = Handle::try_current().ok()?;
        let schedule = Schedule::of(&runtime);
        let number = schedule.add(held, expires_after);
        Some(Self { schedule, number })
    }

    /// The part of a lifetime after which a renewal without an answer is treated as one that is due: it comes sooner than
    /// the next one would have.
    #[must_use]
    pub fn unanswered(lifetime: Duration) -> Duration {
        lifetime / UNANSWERED
    }
}

impl Drop for Renewal {
    fn drop(&mut self) {
        // Dropped after the lock is released: its destructor may come here again.
        let _held = self.schedule.entries.lock().remove(self.number);
    }
}

/// The permits renewed by the task of one runtime.
#[derive(Debug, Default)]
struct Schedule {
    entries: Mutex<Entries>,
    /// Signals that an entry is due before the task's next look.
    sooner: Notify,
    /// True once the task has ended with its runtime.
    has_ended: AtomicBool,
}

#[derive(Default)]
struct Entries {
    held: HashMap<u64, (Instant, Arc<dyn Renew>)>,
    /// Entries that are not being renewed at the moment.
    due: BTreeSet<(Instant, u64)>,
    added: u64,
    /// The time of the task's next look.
    looks_at: Option<Instant>,
}

impl fmt::Debug for Entries {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let held = self.held.len();
        f.debug_struct("Entries").field("held", &held).finish()
    }
}

impl Entries {
    fn remove(&mut self, number: u64) -> Option<Arc<dyn Renew>> {
        let (at, held) = self.held.remove(&number)?;
        self.due.remove(&(at, number));
        Some(held)
    }

    /// Schedules the next renewal of `number`, if it is still held.
    fn put_again(&mut self, number: u64, at: Instant) {
        if let Some(entry) = self.held.get_mut(&number) {
            entry.0 = at;
            self.due.insert((at, number));
        }
    }

    /// Takes up to `most` due entries.
    fn take_due(&mut self, now: Instant, most: usize) -> Vec<(u64, Arc<dyn Renew>)> {
        let mut taken = Vec::new();
        while taken.len() < most
            && let Some((at, number)) = self.due.first().copied()
            && at <= now
        {
            self.due.pop_first();
            let held = self.held.get(&number);
            taken.extend(held.map(|(_, held)| (number, Arc::clone(held))));
        }
        taken
    }
}

thread_local! {
    /// The schedule of the runtime in which this thread was last.
    static LAST: RefCell<Option<(Id, Arc<Schedule>)>> = const { RefCell::new(None) };
}

impl Schedule {
    /// The schedule of `runtime`, whose task is started if there is none.
    fn of(runtime: &Handle) -> Arc<Self> {
        static ALL: Mutex<Vec<(Id, Arc<Schedule>)>> = Mutex::new(Vec::new());
        let id = runtime.id();
        let is_it = |(of, schedule): &&(Id, Arc<Self>)| *of == id && schedule.runs();
        LAST.with_borrow_mut(|last| {
            if let Some((_, schedule)) = last.as_ref().filter(is_it) {
                return Arc::clone(schedule);
            }
            let mut all = ALL.lock();
            // A new runtime may get the id of one that has ended.
            all.retain(|(_, schedule)| schedule.runs());
            let known = all.iter().find(is_it);
            let schedule = known.map(|(_, schedule)| Arc::clone(schedule));
            let schedule = schedule.unwrap_or_else(|| {
                let made = Arc::new(Self::default());
                runtime.spawn(Running(Arc::clone(&made)).run());
                all.push((id, Arc::clone(&made)));
                made
            });
            *last = Some((id, Arc::clone(&schedule)));
            schedule
        })
    }

    fn runs(&self) -> bool {
        !self.has_ended.load(Ordering::Acquire)
    }

    fn add(&self, held: Arc<dyn Renew>, expires_after: Duration) -> u64 {
        let at = due_at(expires_after);
        let mut entries = self.entries.lock();
        entries.added += 1;
        let number = entries.added;
        entries.held.insert(number, (at, held));
        entries.due.insert((at, number));
        let is_sooner = entries.looks_at.is_none_or(|looks_at| at < looks_at);
        if is_sooner {
            entries.looks_at = Some(at);
        }
        drop(entries);
        if is_sooner {
            self.sooner.notify_one();
        }
        number
    }
}

/// The task of a schedule. Dropping it, even before it runs, marks the schedule as ended.
struct Running(Arc<Schedule>);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.has_ended.store(true, Ordering::Release);
    }
}

impl Running {
    /// Renews due entries as long as the runtime lives.
    async fn run(self) {
        let Schedule {
            entries, sooner, ..
        } = &*self.0;
        let mut under_way = JoinSet::new();
        loop {
            let due = {
                let room = UNDER_WAY_MAX - under_way.len();
                entries.lock().take_due(Instant::now(), room)
            };
            for (number, held) in due {
                let renewing = held.renew();
                under_way.spawn(async move { (number, renewing.await) });
            }
            let next = {
                let mut entries = entries.lock();
                let first = entries.due.first().map(|(at, _)| *at);
                entries.looks_at = first.filter(|_| under_way.len() < UNDER_WAY_MAX);
                entries.looks_at
            };
            let mut sooner = pin!(sooner.notified());
            let mut next = pin!(until(next));
            let renewed = poll_fn(|cx| match under_way.poll_join_next(cx) {
                Poll::Ready(Some(renewed)) => Poll::Ready(Some(renewed)),
                _ if sooner.as_mut().poll(cx).is_ready() => Poll::Ready(None),
                _ => next.as_mut().poll(cx).map(|()| None),
            });
            match renewed.await {
                Some(Ok((number, Some(left)))) => {
                    entries.lock().put_again(number, due_at(left));
                }
                Some(Ok((number, None))) => {
                    let _lost = entries.lock().remove(number);
                }
                // It panicked, or the runtime ends: that permit is lost at its deadline.
                Some(Err(_)) | None => {}
            }
        }
    }
}

async fn until(at: Option<Instant>) {
    match at {
        Some(at) => sleep_until(at).await,
        None => pending().await,
    }
}

/// The time at which to renew something with this lifetime.
fn due_at(expires_after: Duration) -> Instant {
    Instant::now() + (expires_after / RENEWED_AFTER).max(PAUSE_LEAST)
}
