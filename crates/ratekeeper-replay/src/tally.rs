//! Counts of one rule.

use ratekeeper_core::Timestamp;

use crate::compare::Differences;
use crate::report::words::time_text;
use crate::report::{Compared, DeniedKey, RuleReport, WorstMinute, percent};
use crate::top::TopKeys;

/// The counts of one rule, in a fixed amount of memory. Time never goes back.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    allowed: u64,
    denied: u64,
    top: TopKeys,
    /// The minute of the last denial since the epoch, and its denials.
    minute: (u64, u64),
    /// The worst minute, and its denials.
    worst: (u64, u64),
}

impl Tally {
    pub(crate) fn allow(&mut self) {
        self.allowed += 1;
    }

    /// Counts a denial of the counter with the readable name `key`.
    pub(crate) fn deny(&mut self, key: &str, now: Timestamp) {
        self.denied += 1;
        self.top.count(key);
        let minute = now.as_micros() / 60_000_000;
        if self.minute.0 != minute {
            self.minute = (minute, 0);
        }
        self.minute.1 += 1;
        if self.minute.1 > self.worst.1 {
            self.worst = self.minute;
        }
    }

    pub(crate) fn requests(&self) -> u64 {
        self.allowed + self.denied
    }

    pub(crate) fn report(&self, rule: &str, top: usize) -> RuleReport {
        let (minute, denied) = self.worst;
        let worst_minute = (denied > 0).then(|| WorstMinute {
            minute: time_text(Timestamp::from_secs(60 * minute)),
            denied,
        });
        let denied_key = |top: crate::top::TopKey<'_>| DeniedKey {
            key: top.key.to_owned(),
            denied: top.count,
            overcounted_at_most: top.error,
        };
        RuleReport {
            rule: rule.to_owned(),
            requests: self.requests(),
            allowed: self.allowed,
            denied: self.denied,
            top_denied: self.top.top(top).into_iter().map(denied_key).collect(),
            worst_minute,
            compare: None,
        }
    }
}

impl From<Differences> for Compared {
    fn from(found: Differences) -> Self {
        let Differences {
            compared,
            exact_denied,
            wrongly_allowed,
            wrongly_denied,
        } = found;
        let of_all = |count| percent(count, compared);
        let net = wrongly_allowed.cast_signed() - wrongly_denied.cast_signed();
        Self {
            requests: compared,
            exact_denied,
            wrongly_allowed,
            wrongly_denied,
            net,
            wrongly_allowed_percent: of_all(wrongly_allowed),
            wrongly_denied_percent: of_all(wrongly_denied),
            net_percent: of_all(net.unsigned_abs()) * if net < 0 { -1.0 } else { 1.0 },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_of_the_worst_minutes() {
        let mut tally = Tally::default();
        assert_eq!(tally.report("r", 3).worst_minute, None);
        for second in [59, 60, 61, 119, 120, 180, 181, 182] {
            tally.deny("k", Timestamp::from_secs(second));
        }
        tally.allow();
        let report = tally.report("r", 3);
        let worst = WorstMinute {
            minute: "1970-01-01T00:01:00Z".into(),
            denied: 3,
        };
        assert_eq!(report.worst_minute, Some(worst));
        assert_eq!((report.requests, report.allowed, report.denied), (9, 1, 8));
    }
}
