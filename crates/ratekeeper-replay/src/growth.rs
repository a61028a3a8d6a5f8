//! The unusual growth that a service would have reported.

use ratekeeper_core::Timestamp;
use ratekeeper_limiter::{Growth, GrowthChange, Limiter};
use ratekeeper_store::memory::MemoryStore;

use crate::report::{GrowthReport, words::time_text};

/// The most reports that are kept; further ones are counted.
const KEPT_MAX: usize = 1_000;

/// The reports so far.
#[derive(Debug, Default)]
pub(crate) struct Grown {
    /// The second of the last line.
    second: u64,
    begun: Vec<Growth>,
    pub(crate) left_out: u64,
}

impl Grown {
    /// Ends the second of the line before, if `now` is a later one.
    pub(crate) fn advance(&mut self, limiter: &Limiter<MemoryStore>, now: Timestamp) {
        let second = now.as_micros() / 1_000_000;
        if self.second == second {
            return;
        }
        let ended = Timestamp::from_secs(std::mem::replace(&mut self.second, second) + 1);
        let changes = limiter.growth().map(|watch| watch.roll(ended));
        for change in changes.unwrap_or_default() {
            match change {
                GrowthChange::Began(growth) if self.begun.len() < KEPT_MAX => {
                    self.begun.push(growth);
                }
                GrowthChange::Began(_) => self.left_out += 1,
                GrowthChange::Ended(growth) => self.end(growth),
            }
        }
    }

    fn end(&mut self, ended: Growth) {
        let is_same = |growth: &&mut Growth| {
            growth.rule == ended.rule
                && growth.subject == ended.subject
                && growth.since == ended.since
        };
        if let Some(growth) = self.begun.iter_mut().rev().find(is_same) {
            *growth = ended;
        }
    }

    /// All growth, the first first; what goes on at the end of the log has no end.
    pub(crate) fn report(&mut self, limiter: &Limiter<MemoryStore>) -> Vec<GrowthReport> {
        // The last second has no line after it.
        self.advance(limiter, Timestamp::from_secs(self.second + 1));
        let active = limiter.growth().map(|watch| watch.active());
        active
            .unwrap_or_default()
            .into_iter()
            .for_each(|growth| self.end(growth));
        self.begun.iter().map(GrowthReport::from).collect()
    }
}

impl From<&Growth> for GrowthReport {
    fn from(growth: &Growth) -> Self {
        Self {
            rule: growth.rule.to_string(),
            key: growth.subject.as_deref().map(str::to_owned),
            since: time_text(growth.since),
            until: growth.until.map(time_text),
            usual_per_minute: growth.usual_per_minute,
            peak_per_minute: growth.peak_per_minute,
        }
    }
}
