//! Request patterns of a single caller.

use ratekeeper_core::{Micros, Verdict};

use super::{Counters, Tally, Visit};
use crate::random::Random;

/// The request pattern of a caller.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Arrivals {
    /// At random, at the limit's rate.
    Random,
    /// Twice the limit within a hundredth of the window, then a pause of up to one and a half windows.
    Bursts,
    /// About a third of a window at four times the limit's rate, then about half a window of
    /// silence.
    OnOff,
    /// Exactly the limit in each window: hits at even gaps, each up to half a gap late.
    Hovering,
    /// Four times the limit's rate without a pause.
    Steady,
    /// One hit after the other, and after a denial again at `retry_after`.
    Polling,
    /// Up to a third of the limit at once, and after a denial again at `retry_after`.
    ManyAtOnce,
    /// The whole limit just before the end of a time step, then as [`Arrivals::Polling`] for a
    /// window.
    BeforeAnEdge,
    /// The whole limit at once, again about a window later, and so on.
    Returning,
}

impl Arrivals {
    /// All patterns, in the order of tables.
    pub const ALL: [Self; 9] = [
        Self::Random,
        Self::Bursts,
        Self::OnOff,
        Self::Hovering,
        Self::Steady,
        Self::Polling,
        Self::ManyAtOnce,
        Self::BeforeAnEdge,
        Self::Returning,
    ];

    /// The name in tables.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Random => "random, at the limit's rate",
            Self::Bursts => "bursts of twice the limit",
            Self::OnOff => "on and off",
            Self::Hovering => "hovering at the limit",
            Self::Steady => "steadily four times the limit",
            Self::Polling => "polling at `retry_after`",
            Self::ManyAtOnce => "polling, many hits at once",
            Self::BeforeAnEdge => "a burst before an edge, then polling",
            Self::Returning => "a burst that returns after a window",
        }
    }

    /// Returns true if the pattern does not depend on the answers. A caller that follows
    /// `retry_after` comes when *this* limiter has room; the exact log would have told another
    /// time, so single decisions cannot be compared.
    #[must_use]
    pub const fn ignores_answers(self) -> bool {
        matches!(
            self,
            Self::Random | Self::Bursts | Self::OnOff | Self::Hovering | Self::Steady
        )
    }

    /// Plays the pattern against a new counter for `windows` windows.
    pub fn play(self, counters: &mut Counters, seed: u64, windows: u64) -> Tally {
        let random = Random::new(seed ^ counters.limit().quota().rotate_left(32));
        let visit = counters.visit();
        let end = windows * visit.window();
        let gap = (visit.window() / visit.quota().max(1)).max(1);
        let mut caller = Caller {
            visit,
            random,
            gap,
            end,
        };
        match self {
            Self::Random => caller.random(),
            Self::Bursts => caller.bursts(),
            Self::OnOff => caller.on_off(),
            Self::Hovering => caller.hovering(),
            Self::Steady => caller.steady(),
            Self::Polling => caller.poll(1, end),
            Self::ManyAtOnce => caller.many_at_once(),
            Self::BeforeAnEdge => caller.before_an_edge(),
            Self::Returning => caller.returning(),
        }
        caller.visit.end()
    }
}

struct Caller<'a> {
    visit: Visit<'a>,
    random: Random,
    /// The mean gap between hits at the limit's rate.
    gap: u64,
    end: u64,
}

impl Caller<'_> {
    fn random(&mut self) {
        let mut now = 0;
        while now < self.end {
            self.visit.ask(now, 1);
            now += self.random.gap(self.gap);
        }
    }

    fn bursts(&mut self) {
        let (window, quota) = (self.visit.window(), self.visit.quota());
        let mut now = self.random.below(window);
        while now < self.end {
            for hit in 0..2 * quota {
                self.visit.ask(now + hit * window / 200 / quota, 1);
            }
            now += window / 100 + self.random.below(window + window / 2);
        }
    }

    fn on_off(&mut self) {
        let window = self.visit.window();
        let mut now = 0;
        while now < self.end {
            let off_at = now + window / 6 + self.random.below(window / 3);
            while now < off_at {
                self.visit.ask(now, 1);
                now += self.random.gap((self.gap / 4).max(1));
            }
            now += window / 4 + self.random.below(window / 2);
        }
    }

    fn hovering(&mut self) {
        let (window, quota) = (self.visit.window(), self.visit.quota());
        for hit in 0..quota * self.end / window {
            let on_time = u128::from(hit) * u128::from(window) / u128::from(quota);
            let late = self.random.below(self.gap / 2);
            self.visit
                .ask(u64::try_from(on_time).unwrap_or(u64::MAX) + late, 1);
        }
    }

    fn steady(&mut self) {
        let mut now = 0;
        while now < self.end {
            self.visit.ask(now, 1);
            now += (self.gap / 4).max(1);
        }
    }

    /// Takes `hits` at a time as soon as they pass, until `end`.
    fn poll(&mut self, hits: u64, end: u64) {
        let mut now = self.visit.now();
        while now < end {
            now = self.retry(now, hits);
        }
    }

    /// Makes one request; returns the time of the next try.
    fn retry(&mut self, now: u64, hits: u64) -> u64 {
        let outcome = self.visit.ask(now, hits);
        match outcome.verdict {
            Verdict::Later => now + outcome.retry_after.max(Micros::new(1)).get(),
            _ => now + 1,
        }
    }

    fn many_at_once(&mut self) {
        let most = (self.visit.quota() / 3).max(1);
        let mut now = 0;
        while now < self.end {
            let hits = self.random.within(1, most);
            now = self.retry(now, hits);
        }
    }

    fn before_an_edge(&mut self) {
        let window = self.visit.window();
        let mut start = 0;
        while start + 4 * window < self.end.max(5 * window) {
            let step = window / self.random.pick(&[1, 12, 60]);
            let early = self.random.pick(&[1, step / 100, step / 14, step / 3]);
            let burst_at = start + step.saturating_sub(early.max(1));
            let room = self.visit.room(burst_at);
            if room > 0 {
                self.visit.ask(burst_at, room);
            }
            self.poll((self.visit.quota() / 256).max(1), burst_at + window);
            start += 4 * window;
        }
    }

    fn returning(&mut self) {
        let window = self.visit.window();
        let mut now = self.random.below(window);
        while now < self.end {
            let room = self.visit.room(now);
            if room > 0 {
                self.visit.ask(now, room);
            }
            let about = window - window / 200 + self.random.below(window / 100);
            now += self.random.pick(&[window - 1, window, about]);
        }
    }
}
