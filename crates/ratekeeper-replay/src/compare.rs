//! Comparison of the rules' decisions with an exact log.

use std::collections::HashMap;

use ratekeeper_core::{Limit, Micros, Mode, Timestamp, Vote, combine};
use ratekeeper_store::{Charge, CounterKey};

use crate::exact::ExactLog;

/// The step of one limit, as far as a comparison needs it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Step {
    pub(crate) rule: u32,
    pub(crate) key: CounterKey,
    pub(crate) limit: Limit,
    pub(crate) charge: Charge,
    pub(crate) vote: Vote,
}

/// The decisions of one rule compared with those of the exact log.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Differences {
    pub(crate) compared: u64,
    pub(crate) exact_denied: u64,
    pub(crate) wrongly_allowed: u64,
    pub(crate) wrongly_denied: u64,
}

/// An exact log for every counter. Each log follows its own admissions: it is charged for requests
/// that *it* lets pass, if the request's other limits passed it too.
///
/// Memory is bounded. Empty logs are dropped from time to time; if the others then fill more than
/// half of [`Self::INSTANTS_MAX`], the comparison ends there and reports how far it got.
#[derive(Debug)]
pub(crate) struct Comparison {
    logs: HashMap<(u32, CounterKey), (ExactLog, Micros)>,
    rules: Vec<Differences>,
    /// Instants in all logs.
    instants: usize,
    instants_max: usize,
    /// Logs after the last sweep; the next sweep is due at twice as many.
    swept: usize,
    ended: bool,
}

impl Comparison {
    /// The most instants in all logs, at 16 bytes each: 256 MiB. A log itself costs as much as ten
    /// instants.
    const INSTANTS_MAX: usize = 16 << 20;
    /// No sweep happens below this many logs.
    const SWEEP_MIN: usize = 1 << 14;
    const LOG_COST: usize = 10;

    pub(crate) fn new(rules: usize) -> Self {
        Self::bounded(rules, Self::INSTANTS_MAX)
    }

    fn bounded(rules: usize, instants_max: usize) -> Self {
        Self {
            instants_max,
            logs: HashMap::new(),
            rules: vec![Differences::default(); rules],
            instants: 0,
            swept: Self::SWEEP_MIN,
            ended: false,
        }
    }

    /// Returns true if limits like this one can be compared with a log of the same quota and
    /// window: a calendar has no such window, and permits are not hits.
    pub(crate) fn covers(limit: &Limit) -> bool {
        !limit.is_calendar() && !limit.algorithm().holds_permits()
    }

    pub(crate) fn of_rule(&self, rule: usize) -> Differences {
        self.rules.get(rule).copied().unwrap_or_default()
    }

    /// Returns true if it ended before the log did.
    pub(crate) fn has_ended(&self) -> bool {
        self.ended
    }

    /// Compares the steps of one request with the logs.
    pub(crate) fn add(&mut self, steps: &[Step], now: Timestamp) {
        if self.ended {
            return;
        }
        for (index, step) in steps.iter().enumerate() {
            if Self::covers(&step.limit) {
                self.add_step(steps, index, step, now);
            }
        }
        if self.logs.len() >= 2 * self.swept || self.cost() > self.instants_max {
            self.sweep(now);
        }
    }

    fn add_step(&mut self, steps: &[Step], index: usize, step: &Step, now: Timestamp) {
        let (quota, window) = (step.limit.quota(), step.limit.window());
        let (log, _) = self
            .logs
            .entry((step.rule, step.key))
            .or_insert_with(|| (ExactLog::default(), window));
        let before = log.instants();
        let fits = log.fits(quota, window, now);
        let votes = steps.iter().enumerate().map(|(other, step)| Vote {
            fits: if other == index { fits } else { step.vote.fits },
            ..step.vote
        });
        if step.charge == Charge::Always || (fits && combine(votes, Mode::default())) {
            log.take(quota, now);
        }
        self.instants = self.instants + log.instants() - before;
        if let Some(rule) = self.rules.get_mut(step.rule as usize) {
            rule.compared += 1;
            rule.exact_denied += u64::from(!fits);
            rule.wrongly_allowed += u64::from(step.vote.fits && !fits);
            rule.wrongly_denied += u64::from(!step.vote.fits && fits);
        }
    }

    fn cost(&self) -> usize {
        self.instants + Self::LOG_COST * self.logs.len()
    }

    /// Drops empty logs; ends the comparison if too much is left.
    fn sweep(&mut self, now: Timestamp) {
        self.logs
            .retain(|_, (log, window)| !log.is_idle(*window, now));
        self.instants = self.logs.values().map(|(log, _)| log.instants()).sum();
        self.swept = self.logs.len().max(Self::SWEEP_MIN);
        // Half, because otherwise the next few hits would trigger another sweep.
        if self.cost() > self.instants_max / 2 {
            self.ended = true;
            self.logs = HashMap::new();
        }
    }
}

#[cfg(test)]
mod tests {
    use ratekeeper_core::{Algorithm, LimitSpec, Micros};

    use super::*;

    fn step(rule: u32, key: u64, fits: bool) -> Step {
        let spec = LimitSpec::new(Algorithm::FixedWindow, 1, Micros::from_secs(10));
        Step {
            rule,
            key: CounterKey {
                subject: key,
                identity: key,
            },
            limit: Limit::try_new(spec).expect("one in ten seconds is a valid limit"),
            charge: Charge::IfAllowed,
            vote: Vote {
                fits,
                descriptor: 0,
                shadow: false,
                quota_mode: false,
            },
        }
    }

    fn second(second: u64) -> Timestamp {
        Timestamp::from_secs(second)
    }

    #[test]
    fn counts_both_errors_on_the_logs_own_admissions() {
        let mut comparison = Comparison::new(1);
        comparison.add(&[step(0, 1, true)], second(109));
        comparison.add(&[step(0, 1, true)], second(110)); // a new fixed window
        comparison.add(&[step(0, 1, false)], second(119)); // the log has forgotten the first
        comparison.add(&[step(0, 2, true)], second(119));
        let expected = Differences {
            compared: 4,
            exact_denied: 1,
            wrongly_allowed: 1,
            wrongly_denied: 1,
        };
        assert_eq!(comparison.of_rule(0), expected);
    }

    #[test]
    fn a_request_that_another_limit_denies_takes_nothing() {
        let mut comparison = Comparison::new(2);
        let denied = Step {
            vote: Vote {
                descriptor: 1,
                ..step(1, 2, false).vote
            },
            ..step(1, 2, false)
        };
        comparison.add(&[step(0, 1, true), denied], second(100));
        comparison.add(&[step(0, 1, true)], second(101));
        assert_eq!(comparison.of_rule(0).wrongly_allowed, 0);
        // What only watches denies nothing: the hit is taken.
        let shadow = Step {
            vote: Vote {
                shadow: true,
                ..denied.vote
            },
            ..denied
        };
        comparison.add(&[step(0, 3, true), shadow], second(102));
        comparison.add(&[step(0, 3, true)], second(103));
        assert_eq!(comparison.of_rule(0).wrongly_allowed, 1);
    }

    #[test]
    fn idle_logs_are_dropped_and_a_flood_ends_the_comparison() {
        let mut comparison = Comparison::bounded(1, 1 << 20);
        let sweep_at = 2 * Comparison::SWEEP_MIN as u64;
        (0..sweep_at).for_each(|key| comparison.add(&[step(0, key, true)], second(100 + key)));
        assert!(comparison.logs.len() <= 11, "{}", comparison.logs.len());
        let flood = 1 << 20;
        (0..flood).for_each(|key| comparison.add(&[step(0, key, true)], second(1_000_000)));
        assert!(comparison.has_ended());
        let compared = comparison.of_rule(0).compared;
        assert!(
            (sweep_at + flood / 22..sweep_at + flood / 10).contains(&compared),
            "{compared}"
        );
        comparison.add(&[step(0, 1, true)], second(1_000_001));
        assert_eq!(comparison.of_rule(0).compared, compared);
    }
}
