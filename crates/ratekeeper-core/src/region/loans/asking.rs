//! The times at which a node asks a region, and how long it waits.

use crate::Micros;

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
pub struct Asking {
    /// The number and the time of the ask that an answer can come to.
    out: Option<(u64, Micros)>,
    next_at: Micros,
    last_at: Micros,
    backoff: Micros,
    /// The hits that the region could spare when it last answered.
    pub spare: u64,
}

impl Asking {
    /// No asks yet; the region is taken to spare `spare` hits.
    #[must_use]
    pub const fn new(spare: u64, times: &AskingTimes) -> Self {
        Self {
            out: None,
            next_at: Micros::ZERO,
            last_at: Micros::ZERO,
            backoff: times.interval,
            spare,
        }
    }

    /// Returns true if it may ask now; `soon` for hits that are lacking already. Gives up an ask that was never answered.
    pub fn may_ask(&mut self, now: Micros, soon: bool, times: &AskingTimes) -> bool {
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
    pub const fn sent(&mut self, number: u64, now: Micros) {
        self.out = Some((number, now));
    }

    /// The time at which the ask of that number was sent, if its answer is still waited for.
    #[must_use]
    pub fn sent_at(&self, number: u64) -> Option<Micros> {
        let out = self.out.filter(|(out, _)| *out == number);
        out.map(|(_, sent)| sent)
    }

    /// Records the answer, which gave something or not.
    pub fn answered(&mut self, now: Micros, spare: u64, gained: bool, times: &AskingTimes) {
        self.out = None;
        self.spare = spare;
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
