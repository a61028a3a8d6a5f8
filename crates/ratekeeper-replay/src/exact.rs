//! The exact log with which approximations are compared.

use std::collections::VecDeque;

use ratekeeper_core::{Micros, Timestamp};

/// Admitted hits with their times: a request passes if `hits in (now - window, now] + 1 <= quota`.
///
/// Hits at the same instant share an entry, so a log with times in whole seconds has at most one
/// entry for each second of the window, however high the quota.
#[derive(Clone, Debug, Default)]
pub(crate) struct ExactLog {
    runs: VecDeque<(Timestamp, u64)>,
    hits: u64,
}

impl ExactLog {
    /// Returns true if one more hit fits now. Drops the hits that have left the window.
    pub(crate) fn fits(&mut self, quota: u64, window: Micros, now: Timestamp) -> bool {
        while let Some(&(at, count)) = self.runs.front()
            && at.after(window) <= now
        {
            self.hits -= count;
            self.runs.pop_front();
        }
        self.hits < quota
    }

    /// Records one hit, even if it does not fit. A full log drops its oldest hit, since only the
    /// newest `quota` hits can matter. `now` never goes back.
    pub(crate) fn take(&mut self, quota: u64, now: Timestamp) {
        if quota == 0 {
            return;
        }
        if self.hits >= quota
            && let Some((_, oldest)) = self.runs.front_mut()
        {
            *oldest -= 1;
            self.hits -= 1;
            if *oldest == 0 {
                self.runs.pop_front();
            }
        }
        self.hits += 1;
        match self.runs.back_mut() {
            Some((at, count)) if *at >= now => *count += 1,
            _ => self.runs.push_back((now, 1)),
        }
    }

    /// Returns true if all hits have left the window.
    pub(crate) fn is_idle(&self, window: Micros, now: Timestamp) -> bool {
        self.runs
            .back()
            .is_none_or(|&(at, _)| at.after(window) <= now)
    }

    /// The number of distinct instants, to which its memory is proportional.
    pub(crate) fn instants(&self) -> usize {
        self.runs.len()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use ratekeeper_core::{Algorithm, Limit, LimitSpec, Moment, State};

    use super::*;

    proptest! {
        /// Agrees with the log in core, which has an entry for every hit.
        #[test]
        fn equals_the_log_of_the_core(
            quota in 1_u64..6,
            window in 1_u64..20,
            steps in prop::collection::vec(0_u64..5, 1..200),
        ) {
            let window = Micros::new(window);
            let spec = LimitSpec::new(Algorithm::SlidingLog, quota, window);
            let limit = Limit::try_new(spec).expect("a small log is a valid limit");
            let mut state = State::new(limit.shape());
            let mut exact = ExactLog::default();
            let mut now = 1_000;
            for step in steps {
                now += step;
                let at = Timestamp::from_micros(now);
                let fits = exact.fits(quota, window, at);
                prop_assert_eq!(fits, limit.step(&mut state, 1, &Moment::at(at)).fits());
                if fits {
                    exact.take(quota, at);
                }
                prop_assert!(exact.instants() as u64 <= quota.min(window.get()));
            }
        }
    }

    #[test]
    fn idle_once_the_newest_hit_has_left() {
        let (mut log, window) = (ExactLog::default(), Micros::new(10));
        assert!(log.is_idle(window, Timestamp::EPOCH));
        log.take(1, Timestamp::from_micros(5));
        assert!(!log.is_idle(window, Timestamp::from_micros(14)));
        assert!(log.is_idle(window, Timestamp::from_micros(15)));
    }
}
