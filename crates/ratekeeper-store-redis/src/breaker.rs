//! The circuit breaker that decides if a shard is asked at all.
//!
//! ```text
//!            3 failures in a row              cooldown over, one probe
//!   closed ------------------------>  open  ---------------------------> half-open
//!      ^                               ^  \                                  |
//!      |                               |   `------ the probe failed ---------+
//!      +------------ the probe was answered in time, with a decision ---------'
//! ```
//!
//! A failure is a connection that broke or could not be made, a pipeline without an answer within
//! the deadline, or an answer by which the server says that it cannot serve. A decision that waited
//! too long for its turn is none: that is our load, not the server's fault. Failures at the same
//! moment count as one: when a server stalls, everything in flight fails together, and the number
//! says nothing about how long it stalled.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tokio::sync::Notify;

/// Consecutive failures that open the breaker.
const FAILURES_MAX: u32 = 3;

/// The least time between two failures that count as two.
const MOMENT: Duration = Duration::from_millis(5);

/// The time it stays open before the first probe; doubled after each probe that fails.
const COOLDOWN: Duration = Duration::from_millis(100);

/// The longest cooldown: a server that is back is noticed within a second.
const COOLDOWN_MAX: Duration = Duration::from_millis(400);

/// The time it is held open, unless it is released or held again.
const HELD: Duration = Duration::from_secs(10);

/// The traffic that a shard's breaker lets through.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Circuit {
    /// Everything.
    Closed,
    /// One probe.
    HalfOpen,
    /// Nothing.
    Open,
}

impl Circuit {
    /// The value of `ratelimit_circuit_state`: 0 closed, 1 half-open, 2 open.
    #[must_use]
    pub const fn number(self) -> u8 {
        match self {
            Self::Closed => 0,
            Self::HalfOpen => 1,
            Self::Open => 2,
        }
    }

    const fn from_number(number: u8) -> Self {
        match number {
            0 => Self::Closed,
            1 => Self::HalfOpen,
            _ => Self::Open,
        }
    }
}

/// The breaker of one shard, shared by all that ask it.
#[derive(Debug)]
pub(crate) struct Breaker {
    origin: Instant,
    state: AtomicU8,
    failures: AtomicU32,
    /// The time of the last failure, in microseconds after `origin`.
    failed_at: AtomicU64,
    /// Microseconds after `origin` until which no probe is made.
    open_until: AtomicU64,
    /// The length of the last cooldown, in microseconds.
    cooldown: AtomicU64,
    opened: AtomicU64,
    /// True while it is held open for a reason other than failures.
    is_held: AtomicBool,
    /// Wakes those waiting for a change of state.
    changed: Notify,
}

impl Breaker {
    pub(crate) fn new() -> Self {
        Self {
            origin: Instant::now(),
            state: AtomicU8::new(Circuit::Closed.number()),
            failures: AtomicU32::new(0),
            failed_at: AtomicU64::new(0),
            open_until: AtomicU64::new(0),
            cooldown: AtomicU64::new(0),
            opened: AtomicU64::new(0),
            is_held: AtomicBool::new(false),
            changed: Notify::new(),
        }
    }

    pub(crate) fn circuit(&self) -> Circuit {
        // Relaxed: a decision that sees the previous state is as good as one made a moment earlier.
        Circuit::from_number(self.state.load(Ordering::Relaxed))
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.circuit() == Circuit::Closed
    }

    /// The number of times it has opened.
    pub(crate) fn opened(&self) -> u64 {
        self.opened.load(Ordering::Relaxed)
    }

    /// An answer came in time.
    pub(crate) fn succeeded(&self) {
        if self.failures.load(Ordering::Relaxed) != 0 {
            self.failures.store(0, Ordering::Relaxed);
        }
    }

    /// The shard failed. True if that opened the breaker.
    pub(crate) fn failed(&self, now: Instant) -> bool {
        let at = micros(now.saturating_duration_since(self.origin));
        let last = self.failed_at.load(Ordering::Relaxed);
        let is_first = self.failures.load(Ordering::Relaxed) == 0;
        if !is_first && at < last + micros(MOMENT) {
            return false;
        }
        let order = Ordering::Relaxed;
        if (self.failed_at)
            .compare_exchange(last, at, order, order)
            .is_err()
        {
            // Another failure of this moment was counted meanwhile.
            return false;
        }
        let failures = self.failures.fetch_add(1, Ordering::Relaxed) + 1;
        if failures < FAILURES_MAX || !self.is_closed() {
            return false;
        }
        self.cooldown.store(micros(COOLDOWN), Ordering::Relaxed);
        self.open(Circuit::Closed, now, COOLDOWN)
    }

    /// The time of the next probe; in the past if one may be made at once.
    pub(crate) fn probe_at(&self) -> Instant {
        self.origin + Duration::from_micros(self.open_until.load(Ordering::Relaxed))
    }

    /// The right to make the one probe; [`None`] if it is too early, or another has it.
    pub(crate) fn try_probe(&self, now: Instant) -> Option<Probe<'_>> {
        if now < self.probe_at() || !self.swap(Circuit::Open, Circuit::HalfOpen) {
            return None;
        }
        Some(Probe {
            breaker: self,
            answered: false,
        })
    }

    /// Waits until the state satisfies `wanted`.
    pub(crate) async fn wait_for(&self, wanted: impl Fn(Circuit) -> bool) {
        loop {
            let changed = self.changed.notified();
            tokio::pin!(changed);
            // Before looking, so that no change between is missed.
            changed.as_mut().enable();
            if wanted(self.circuit()) {
                return;
            }
            changed.await;
        }
    }

    /// Keeps it open for [`HELD`], without probes, and counts nothing.
    pub(crate) fn hold(&self, now: Instant) {
        let until = now.saturating_duration_since(self.origin) + HELD;
        self.open_until.store(micros(until), Ordering::Relaxed);
        self.is_held.store(true, Ordering::Relaxed);
        self.swap(Circuit::Closed, Circuit::Open);
    }

    /// Closes it if it is held open; returns true if it was.
    pub(crate) fn release(&self) -> bool {
        let was_held = self.is_held.swap(false, Ordering::Relaxed);
        if was_held {
            self.failures.store(0, Ordering::Relaxed);
            self.swap(Circuit::Open, Circuit::Closed);
        }
        was_held
    }

    fn open(&self, from: Circuit, now: Instant, cooldown: Duration) -> bool {
        let until = now.saturating_duration_since(self.origin) + cooldown;
        self.open_until.store(micros(until), Ordering::Relaxed);
        let opened = self.swap(from, Circuit::Open);
        // A probe that failed leaves it as open as it was.
        if opened && from == Circuit::Closed {
            self.opened.fetch_add(1, Ordering::Relaxed);
        }
        opened
    }

    fn swap(&self, from: Circuit, to: Circuit) -> bool {
        // Release, paired with the acquire of the next swap: the prober sees the cooldown.
        let swapped = self.state.compare_exchange(
            from.number(),
            to.number(),
            Ordering::AcqRel,
            Ordering::Relaxed,
        );
        if swapped.is_ok() {
            self.changed.notify_waiters();
        }
        swapped.is_ok()
    }
}

/// The one probe of a half-open breaker. Dropped without an answer, it has failed.
#[derive(Debug)]
pub(crate) struct Probe<'a> {
    breaker: &'a Breaker,
    answered: bool,
}

impl Probe<'_> {
    /// It was answered in time: the breaker closes.
    pub(crate) fn answered(mut self) {
        self.answered = true;
        self.breaker.failures.store(0, Ordering::Relaxed);
        self.breaker.swap(Circuit::HalfOpen, Circuit::Closed);
    }
}

impl Drop for Probe<'_> {
    fn drop(&mut self) {
        if self.answered {
            return;
        }
        let last = Duration::from_micros(self.breaker.cooldown.load(Ordering::Relaxed));
        let cooldown = (last * 2).clamp(COOLDOWN, COOLDOWN_MAX);
        let stored = micros(cooldown);
        self.breaker.cooldown.store(stored, Ordering::Relaxed);
        self.breaker
            .open(Circuit::HalfOpen, Instant::now(), cooldown);
    }
}

fn micros(span: Duration) -> u64 {
    u64::try_from(span.as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn opened() -> (Breaker, Instant) {
        let breaker = Breaker::new();
        let mut now = Instant::now();
        for opens in [false, false, true] {
            now += MOMENT;
            assert_eq!(breaker.failed(now), opens);
        }
        assert_eq!(breaker.circuit(), Circuit::Open);
        (breaker, now)
    }

    #[test]
    fn failures_in_a_row_open_it_and_others_do_not() {
        let breaker = Breaker::new();
        let mut now = Instant::now();
        for _ in 0..10 {
            for _ in 0..2 {
                now += MOMENT;
                breaker.failed(now);
            }
            breaker.succeeded();
        }
        assert!(breaker.is_closed());
        assert_eq!(opened().0.opened(), 1);
    }

    #[test]
    fn what_fails_at_the_same_moment_is_one_failure() {
        let breaker = Breaker::new();
        let start = Instant::now() + MOMENT;
        for opens in [false, false, true] {
            let now = start + MOMENT * breaker.failures.load(Ordering::Relaxed);
            assert_eq!(breaker.failed(now), opens);
            for _ in 0..100 {
                assert!(!breaker.failed(now + MOMENT / 2));
            }
        }
        assert_eq!(breaker.circuit(), Circuit::Open);
    }

    #[test]
    fn one_probe_at_a_time_after_the_cooldown() {
        let (breaker, now) = opened();
        assert!(breaker.try_probe(now).is_none());
        let later = now + COOLDOWN;
        let probe = breaker.try_probe(later).expect("the cooldown is over");
        assert_eq!(breaker.circuit(), Circuit::HalfOpen);
        assert!(breaker.try_probe(later).is_none());
        probe.answered();
        assert!(breaker.is_closed());
    }

    #[test]
    fn a_failed_probe_opens_it_again_for_no_longer_than_the_most() {
        let (breaker, mut now) = opened();
        for _ in 0..10 {
            now += COOLDOWN_MAX * 2;
            drop(breaker.try_probe(now).expect("the cooldown is over"));
            assert_eq!(breaker.circuit(), Circuit::Open);
            assert!(breaker.probe_at() <= Instant::now() + COOLDOWN_MAX);
        }
    }

    #[test]
    fn held_open_it_is_not_probed_until_it_is_released() {
        let (breaker, now) = (Breaker::new(), Instant::now());
        assert!(!breaker.release());
        breaker.hold(now);
        assert_eq!(breaker.circuit(), Circuit::Open);
        assert!(breaker.try_probe(now + COOLDOWN_MAX).is_none());
        // It is no longer held, and finds out for itself.
        drop(breaker.try_probe(now + HELD).expect("a probe"));
        breaker.hold(now);
        assert!(breaker.release());
        assert!(breaker.is_closed());
        assert_eq!(opened().0.opened(), 1);
    }
}
