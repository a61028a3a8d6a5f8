//! The lines of those who wait for their turn, one for each key.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};
use std::future::poll_fn;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use parking_lot::Mutex;
use ratekeeper_store::CounterKey;

use crate::WaitError;
use crate::clock::Sleep;

/// All lines of a limiter.
#[derive(Debug)]
pub(crate) struct Lines {
    inner: Mutex<Inner>,
    waiting_max: usize,
}

#[derive(Default, Debug)]
struct Inner {
    by_key: HashMap<CounterKey, VecDeque<Waiter>>,
    waiting: usize,
    joined: u64,
}

#[derive(Debug)]
struct Waiter {
    id: u64,
    waker: Option<Waker>,
    /// Something was given back: it may fit sooner than it was told.
    is_nudged: bool,
}

impl Lines {
    pub(crate) fn new(waiting_max: usize) -> Self {
        Self {
            inner: Mutex::default(),
            waiting_max,
        }
    }

    /// Returns true if somebody waits for `key`.
    pub(crate) fn has(&self, key: CounterKey) -> bool {
        self.inner.lock().by_key.contains_key(&key)
    }

    /// Joins the end of the line of `key`.
    pub(crate) fn join(&self, key: CounterKey) -> Result<LinePosition<'_>, WaitError> {
        let mut inner = self.inner.lock();
        if inner.waiting >= self.waiting_max {
            return Err(WaitError::Crowded);
        }
        inner.waiting += 1;
        inner.joined += 1;
        let id = inner.joined;
        inner.by_key.entry(key).or_default().push_back(Waiter {
            id,
            waker: None,
            is_nudged: false,
        });
        Ok(LinePosition {
            lines: self,
            key,
            id,
        })
    }

    /// Has the first in the line of `key` look again.
    pub(crate) fn nudge(&self, key: CounterKey) {
        let mut inner = self.inner.lock();
        let first = inner.by_key.get_mut(&key).and_then(VecDeque::front_mut);
        let waker = first.and_then(|first| {
            first.is_nudged = true;
            first.waker.take()
        });
        drop(inner);
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

/// A position in a line. Dropping it leaves the line, and calls the next one if it was the first.
#[derive(Debug)]
pub(crate) struct LinePosition<'l> {
    lines: &'l Lines,
    key: CounterKey,
    id: u64,
}

impl LinePosition<'_> {
    /// Waits until no other is before it; false if `deadline` comes first.
    pub(crate) async fn turn(&self, deadline: Option<Sleep>) -> Result<bool, WaitError> {
        let is_first = |inner: &Inner| {
            let line = inner.by_key.get(&self.key);
            line.and_then(VecDeque::front)
                .is_some_and(|first| first.id == self.id)
        };
        self.until(deadline, |inner| is_first(inner)).await
    }

    /// Sleeps, unless something is given back before.
    pub(crate) async fn sleep(&self, sleep: Sleep) -> Result<(), WaitError> {
        let woken = self.until(Some(sleep), |inner| {
            let waiter = self.find(inner);
            waiter.is_some_and(|waiter| std::mem::take(&mut waiter.is_nudged))
        });
        woken.await.map(drop)
    }

    /// Waits until `is_done`, which is asked under the lock; false if `sleep` ends first.
    async fn until(
        &self,
        sleep: Option<Sleep>,
        is_done: impl Fn(&mut Inner) -> bool,
    ) -> Result<bool, WaitError> {
        let mut sleep = pin!(sleep);
        poll_fn(|cx: &mut Context<'_>| {
            let mut inner = self.lines.inner.lock();
            if is_done(&mut inner) {
                return Poll::Ready(Ok(true));
            }
            if let Some(waiter) = self.find(&mut inner) {
                waiter.waker = Some(cx.waker().clone());
            }
            drop(inner);
            match sleep.as_mut().as_pin_mut().map(|sleep| sleep.poll(cx)) {
                Some(Poll::Ready(Ok(()))) => Poll::Ready(Ok(false)),
                Some(Poll::Ready(Err(_))) => Poll::Ready(Err(WaitError::NoTimer)),
                Some(Poll::Pending) | None => Poll::Pending,
            }
        })
        .await
    }

    fn find<'i>(&self, inner: &'i mut Inner) -> Option<&'i mut Waiter> {
        let line = inner.by_key.get_mut(&self.key)?;
        line.iter_mut().find(|waiter| waiter.id == self.id)
    }
}

impl Drop for LinePosition<'_> {
    fn drop(&mut self) {
        let mut inner = self.lines.inner.lock();
        inner.waiting = inner.waiting.saturating_sub(1);
        let Entry::Occupied(mut entry) = inner.by_key.entry(self.key) else {
            return;
        };
        let line = entry.get_mut();
        let was_first = line.front().is_some_and(|first| first.id == self.id);
        line.retain(|waiter| waiter.id != self.id);
        let next = match line.front_mut() {
            Some(next) if was_first => next.waker.take(),
            Some(_) => None,
            None => {
                entry.remove();
                None
            }
        };
        drop(inner);
        if let Some(next) = next {
            next.wake();
        }
    }
}
