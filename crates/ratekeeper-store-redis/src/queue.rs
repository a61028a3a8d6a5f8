//! Decisions waiting for their turn, in groups that are decided together.
//!
//! Requests for the same counters under the same limits are one group, however many they are: a hot
//! key costs one command per round trip. Within a group the order of arrival is kept. Everything
//! here waits at the same time and has no answer yet, so any order of the groups is one in which
//! the requests could have come.

use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use parking_lot::{Mutex, MutexGuard};
use ratekeeper_core::Timestamp;
use ratekeeper_store::{Post, Request, StoreError};
use tokio::sync::Notify;

use crate::script::Group;
use crate::stall::{Mark, Stall};
use crate::waiting::{Member, Members, Waiting, earliest};

/// The most requests in one group: the most that one script call may be asked to step through.
const MEMBERS_MAX: usize = 1_024;

/// The limits of a queue.
#[derive(Clone, Copy, Debug)]
pub(crate) struct QueueBounds {
    /// The most requests waiting at the same time; more are refused at once.
    pub(crate) waiting_max: usize,
    /// Merges requests for the same counters, so that they are decided together.
    pub(crate) merges: bool,
}

/// The groups taken from a queue.
#[derive(Debug, Default)]
pub(crate) struct Taken {
    pub(crate) waiting: Vec<Waiting>,
    /// Requests that waited too long.
    pub(crate) expired: usize,
}

/// The decisions that wait for one connection.
#[derive(Debug)]
pub(crate) struct Queue {
    inner: Mutex<Inner>,
    bounds: QueueBounds,
    /// Notified when something enters the queue.
    pub(crate) filled: Notify,
    /// Notified when something enters an empty queue, so that its deadline has to be watched.
    pub(crate) begun: Notify,
    closed: AtomicBool,
}

#[derive(Debug, Default)]
struct Inner {
    groups: VecDeque<Waiting>,
    /// The number of groups that have left the queue.
    gone: u64,
    waiting: usize,
    /// The last group of each signature, counted from the first one ever.
    last: HashMap<u64, u64, BuildHasherDefault<Unhashed>>,
}

/// The outcome of queueing a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Pushed {
    /// It waits with others for the same counters.
    Merged,
    /// It waits by itself.
    Queued,
    /// There is no room.
    Full,
    /// The queue is closed: no task takes from it any more.
    Closed,
}

impl Queue {
    pub(crate) fn new(bounds: QueueBounds) -> Self {
        Self {
            inner: Mutex::default(),
            bounds,
            filled: Notify::new(),
            begun: Notify::new(),
            closed: AtomicBool::new(false),
        }
    }

    /// Queues `request`; `member` is only made if there is room.
    pub(crate) fn push(&self, request: &Request<'_>, member: impl FnOnce() -> Member) -> Pushed {
        let signature = signature(request);
        let mut inner = match self.admit() {
            Ok(inner) => inner,
            Err(refused) => return refused,
        };
        if self.bounds.merges
            && let Some(waiting) = inner.same(signature)
            && waiting.group.merge(request)
        {
            waiting.members.list.push(member());
            return Pushed::Merged;
        }
        let members = Members::one(member(), signature, request.now);
        let group = Group::new(request);
        self.begin(inner, Waiting { group, members });
        Pushed::Queued
    }

    /// Queues a post; `member` is only made if there is room.
    pub(crate) fn push_post(&self, post: &Post, member: impl FnOnce() -> Member) -> Pushed {
        let inner = match self.admit() {
            Ok(inner) => inner,
            Err(refused) => return refused,
        };
        #[expect(clippy::cast_possible_truncation, reason = "the two halves of the id")]
        let [high, low] = [
            (post.id >> 64) as u64,
            (post.id & u128::from(u64::MAX)) as u64,
        ];
        // A signature of its own: no request is merged with it.
        let members = Members::one(member(), high ^ low, Timestamp::EPOCH);
        let group = Group::of_post(post);
        self.begin(inner, Waiting { group, members });
        Pushed::Queued
    }

    /// Takes room for one request, or returns the reason that there is none.
    #[inline]
    fn admit(&self) -> Result<MutexGuard<'_, Inner>, Pushed> {
        let mut inner = self.inner.lock();
        if self.closed.load(Ordering::Relaxed) {
            return Err(Pushed::Closed);
        }
        if inner.waiting >= self.bounds.waiting_max {
            return Err(Pushed::Full);
        }
        inner.waiting += 1;
        Ok(inner)
    }

    /// Appends a group, and wakes the tasks that wait for one.
    fn begin(&self, mut inner: MutexGuard<'_, Inner>, waiting: Waiting) {
        let begins = inner.groups.is_empty();
        inner.begin(waiting);
        drop(inner);
        self.filled.notify_one();
        if begins {
            self.begun.notify_one();
        }
    }

    /// Queues a group again after it was sent and not carried out, even if there is no room.
    pub(crate) fn put_back(&self, mut waiting: Waiting) {
        let mut inner = self.inner.lock();
        if self.closed.load(Ordering::Relaxed) {
            waiting.members.fail(StoreError::Unavailable);
            return;
        }
        inner.waiting += waiting.members.list.len();
        inner.begin(waiting);
        drop(inner);
        self.filled.notify_one();
        // Its deadline may be earlier than those of the groups already waiting.
        self.begun.notify_one();
    }

    /// Returns true if nothing waits.
    pub(crate) fn is_empty(&self) -> bool {
        self.inner.lock().groups.is_empty()
    }

    /// Takes up to `groups_max` groups, the oldest first, with their callers. Requests that no caller
    /// waits for any more are left out; those whose deadline has passed by `now` fail with `late`,
    /// and are counted.
    ///
    /// With `had_room` nothing but the connection's own task kept them waiting.
    pub(crate) fn take(
        &self,
        groups_max: usize,
        now: Instant,
        stall: &Stall,
        had_room: bool,
        late: StoreError,
    ) -> Taken {
        let mut inner = self.inner.lock();
        if had_room && let Some(since) = inner.fresh_since() {
            stall.ran(since, now);
        }
        let stood = stall.mark();
        let mut taken = Taken::default();
        while taken.waiting.len() < groups_max
            && let Some(mut waiting) = inner.pop()
        {
            let (expired, _) = waiting.members.expire_first(now, stood, late);
            taken.expired += expired;
            if waiting.is_over() {
                continue;
            }
            waiting.prune();
            taken.waiting.push(waiting);
        }
        taken
    }

    /// Fails every request whose deadline has passed by `now`. Returns how many, and the earliest
    /// deadline of the rest.
    pub(crate) fn expire(
        &self,
        now: Instant,
        stood: Mark,
        error: StoreError,
    ) -> (usize, Option<Instant>) {
        let mut inner = self.inner.lock();
        let (mut expired, mut next, mut removed) = (0, None, 0);
        for waiting in &mut inner.groups {
            let (count, then) = waiting.members.expire_first(now, stood, error);
            expired += count;
            next = earliest(next, then);
            // A group without requests is none, so its last request stays until the group goes.
            if !waiting.is_over() {
                removed += waiting.prune();
            }
        }
        inner.waiting -= removed;
        while inner.groups.front().is_some_and(Waiting::is_over) {
            inner.pop();
        }
        (expired, next)
    }

    /// Fails every waiting request.
    pub(crate) fn fail(&self, error: StoreError) {
        let mut inner = self.inner.lock();
        while let Some(mut waiting) = inner.pop() {
            waiting.members.fail(error);
        }
    }

    /// Closes the queue, and fails every waiting request.
    pub(crate) fn close(&self) {
        let inner = self.inner.lock();
        self.closed.store(true, Ordering::Relaxed);
        drop(inner);
        self.fail(StoreError::Unavailable);
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Relaxed)
    }
}

impl Inner {
    /// The time at which the first request in line came, if it was never sent.
    fn fresh_since(&self) -> Option<Instant> {
        let first = self.groups.front()?;
        let member = first.members.list.first()?;
        (first.members.attempts == 0).then_some(member.queued_at)
    }

    /// The last waiting group with that signature, if it has room for one more.
    fn same(&mut self, signature: u64) -> Option<&mut Waiting> {
        let place = self.last.get(&signature)?.checked_sub(self.gone)?;
        let waiting = self.groups.get_mut(usize::try_from(place).ok()?)?;
        (waiting.members.list.len() < MEMBERS_MAX).then_some(waiting)
    }

    fn begin(&mut self, waiting: Waiting) {
        let number = self.gone + self.groups.len() as u64;
        self.last.insert(waiting.members.signature, number);
        self.groups.push_back(waiting);
    }

    fn pop(&mut self) -> Option<Waiting> {
        let waiting = self.groups.pop_front()?;
        let signature = waiting.members.signature;
        if self.last.get(&signature) == Some(&self.gone) {
            self.last.remove(&signature);
        }
        self.gone += 1;
        self.waiting -= waiting.members.list.len();
        Some(waiting)
    }
}

/// Returns the same signature for requests for the same counters, and hardly ever for others: the
/// names of counters are keyed hashes already.
pub(crate) fn signature(request: &Request<'_>) -> u64 {
    request.steps.iter().fold(0, |folded: u64, step| {
        let folded = folded.rotate_left(23) ^ step.key.identity;
        folded.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ step.key.subject.rotate_left(11)
    })
}

/// Uses a signature as its own hash.
#[derive(Default)]
pub(crate) struct Unhashed(u64);

impl Hasher for Unhashed {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = self.0.rotate_left(8) ^ u64::from(*byte);
        }
    }

    fn write_u64(&mut self, number: u64) {
        self.0 = number;
    }
}
