//! Hits with their times.

use ratekeeper_core::Timestamp;

/// A list of hits, oldest first.
#[derive(Clone, Debug, Default)]
pub(crate) struct Timeline(Vec<(u64, u64)>);

impl Timeline {
    /// The number of hits at times for which `within` holds.
    pub(crate) fn count(&self, within: impl Fn(u64) -> bool) -> u128 {
        let hits = self.0.iter().filter(|(time, _)| within(*time));
        hits.map(|(_, hits)| u128::from(*hits)).sum()
    }

    /// The time of the newest hit.
    pub(crate) fn newest(&self) -> Option<Timestamp> {
        self.0.last().map(|(time, _)| Timestamp::from_micros(*time))
    }

    /// Adds `hits`, or removes them if negative: the newest first, and only those at times for
    /// which `within` holds.
    pub(crate) fn charge(&mut self, hits: i64, now: u64, within: impl Fn(u64) -> bool) {
        if hits > 0 {
            self.0.push((now, hits.unsigned_abs()));
        }
        let mut refund = hits.min(0).unsigned_abs();
        for (_, hits) in self.0.iter_mut().rev().filter(|(time, _)| within(*time)) {
            let back = refund.min(*hits);
            *hits -= back;
            refund -= back;
        }
        self.0.retain(|(_, hits)| *hits > 0);
    }

    /// Drops the hits at times for which `gone` holds.
    pub(crate) fn forget(&mut self, gone: impl Fn(u64) -> bool) {
        self.0.retain(|(time, _)| !gone(*time));
    }

    /// Drops the oldest hits until at most `most` are left.
    pub(crate) fn forget_oldest(&mut self, most: u128) {
        let mut excess = self.count(|_| true).saturating_sub(most);
        for (_, hits) in &mut self.0 {
            let dropped = excess.min(u128::from(*hits));
            *hits -= u64::try_from(dropped).unwrap_or(*hits);
            excess -= dropped;
        }
        self.0.retain(|(_, hits)| *hits > 0);
    }
}

/// The part of `quota` that `used` hits leave.
pub(crate) fn left(quota: u64, used: u128) -> u64 {
    u64::try_from(u128::from(quota).saturating_sub(used)).unwrap_or(0)
}
