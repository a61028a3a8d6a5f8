//! The times at which a node asks a region, and how long it waits.

use crate::Micros;

const SECOND: u64 = 1_000_000;

/// The times of asks, of one counter and one other region, by the node's boot clock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AskingTimes {
    /// The least time between two asks.
    pub interval: Micros,
    /// The longest time between two asks while answers give nothing.
    pub backoff_max: Micros,
    /// The least time between an answer and an ask for the window that is in use.
    pub soon: Micros,
    /// The time after which an ask is given up.
    pub timeout: Micros,
}

/// The asks of a node for one counter of one region.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Asking {
    /// The number and the time of the ask that an answer can come to.
    out: Option<(u64, Micros)>,
    next_at: Micros,
    last_at: Micros,
    backoff: Micros,
}

impl AskingTimes {
    /// The times for a counter of a limit with that window. However short that is, the last two are a few round trips.
    #[must_use]
    pub fn of(window: Micros) -> Self {
        let window = window.get();
        Self {
            interval: Micros::new((window / 50).clamp(SECOND / 10, SECOND)),
            backoff_max: Micros::new((window / 2).clamp(SECOND, 10 * SECOND)),
            soon: Micros::new((window / 8).clamp(SECOND / 4, 5 * SECOND)),
            timeout: Micros::from_secs(1),
        }
    }
}

impl Asking {
    /// No asks yet.
    pub(super) const fn new(times: &AskingTimes) -> Self {
        Self {
            out: None,
            next_at: Micros::ZERO,
            last_at: Micros::ZERO,
            backoff: times.interval,
        }
    }

    /// Returns true if it may ask now; `soon` for hits that are lacking already. Gives up an ask that was never answered.
    pub(super) fn may_ask(&mut self, now: Micros, soon: bool, times: &AskingTimes) -> bool {
        if let Some((_, sent)) = self.out {
            if now < later(sent, times.timeout) {
                return false;
            }
            self.out = None;
            self.wait(now, false, times);
        }
        now >= self.next_at || soon && now >= later(self.last_at, times.soon)
    }

    /// Records that the ask of that number was sent.
    pub(super) const fn sent(&mut self, number: u64, now: Micros) {
        self.out = Some((number, now));
    }

    /// The time at which the ask of that number was sent, if its answer is still waited for.
    pub(super) fn sent_at(&self, number: u64) -> Option<Micros> {
        let out = self.out.filter(|(out, _)| *out == number);
        out.map(|(_, sent)| sent)
    }

    /// Records the answer, which gave something or not.
    pub(super) fn answered(&mut self, now: Micros, gained: bool, times: &AskingTimes) {
        self.out = None;
        self.wait(now, gained, times);
    }

    fn wait(&mut self, now: Micros, gained: bool, times: &AskingTimes) {
        self.backoff = match gained {
            true => times.interval,
            false => later(self.backoff, self.backoff).min(times.backoff_max),
        };
        self.next_at = later(now, self.backoff);
        self.last_at = now;
    }
}

fn later(time: Micros, span: Micros) -> Micros {
    Micros::new(time.get().saturating_add(span.get()))
}
