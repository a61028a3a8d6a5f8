//! The exact count of one counter, compared with its limiter's answers.

use std::collections::VecDeque;

use ratekeeper_core::{Micros, Timestamp};

use super::Form;

/// Hits with their times, as far back as a window reaches.
#[derive(Clone, Debug, Default)]
struct Recent {
    runs: VecDeque<(u64, u64)>,
    hits: u64,
}

impl Recent {
    /// The number of hits in (now - span, now]; drops all earlier ones.
    fn within(&mut self, span: u64, now: u64) -> u64 {
        while let Some(&(at, hits)) = self.runs.front()
            && at + span <= now
        {
            self.hits -= hits;
            self.runs.pop_front();
        }
        self.hits
    }

    fn add(&mut self, hits: u64, now: u64) {
        self.hits += hits;
        match self.runs.back_mut() {
            Some((at, count)) if *at == now => *count += hits,
            _ => self.runs.push_back((now, hits)),
        }
    }
}

/// The decisions of a limiter, compared with those of an exact log.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Tally {
    /// All requests.
    pub requests: u64,
    /// Hits that the limiter admitted.
    pub admitted: u64,
    /// Hits that the exact log admitted.
    pub exact_admitted: u64,
    /// Requests that the exact log denied.
    pub exact_denied: u64,
    /// Requests that only the exact log denied.
    pub wrongly_allowed: u64,
    /// Requests that only the limiter denied.
    pub wrongly_denied: u64,
    /// Denied requests of a caller that had requested no more than the limit in the window and two
    /// ticks.
    pub denied_below: u64,
    /// The most hits that passed in any window.
    pub worst: u64,
}

impl Tally {
    /// Adds another counter's tally: the maximum of the worst windows, the sum of everything else.
    pub fn add(&mut self, other: &Self) {
        self.requests += other.requests;
        self.admitted += other.admitted;
        self.exact_admitted += other.exact_admitted;
        self.exact_denied += other.exact_denied;
        self.wrongly_allowed += other.wrongly_allowed;
        self.wrongly_denied += other.wrongly_denied;
        self.denied_below += other.denied_below;
        self.worst = self.worst.max(other.worst);
    }

    /// `count` in percent of all requests; 0 without requests.
    #[must_use]
    #[allow(clippy::cast_precision_loss, reason = "a percentage for a table")]
    pub fn percent(&self, count: u64) -> f64 {
        100.0 * count as f64 / self.requests.max(1) as f64
    }
}

/// The history of one counter: requested hits, admitted hits, and the hits that an exact log would
/// have admitted.
///
/// The limiter and the exact log each track their own admissions. A request is wrongly denied if
/// only the limiter denies it, and wrongly allowed if only the log does.
#[derive(Clone, Debug)]
pub struct Ledger {
    quota: u64,
    window: u64,
    looks_back: u64,
    never_denied_up_to: u64,
    asked: Recent,
    admitted: Recent,
    exact: Recent,
    tally: Tally,
}

impl Ledger {
    /// An empty ledger of a counter of `form`.
    #[must_use]
    pub fn new(form: Form, quota: u64, window: Micros) -> Self {
        Self {
            quota,
            window: window.get(),
            looks_back: window.get() + 2 * form.tick(quota, window).get(),
            never_denied_up_to: form.never_denied_up_to(quota),
            asked: Recent::default(),
            admitted: Recent::default(),
            exact: Recent::default(),
            tally: Tally::default(),
        }
    }

    /// Records a request for `hits`, 1 or more, and the limiter's decision. Times never go back.
    pub fn enter(&mut self, now: Timestamp, hits: u64, passed: bool) {
        let now = now.as_micros();
        let asked = self.asked.within(self.looks_back, now) + hits;
        self.asked.add(hits, now);
        let exact = self.exact.within(self.window, now) + hits <= self.quota;
        let tally = &mut self.tally;
        tally.requests += 1;
        tally.exact_denied += u64::from(!exact);
        tally.wrongly_allowed += u64::from(passed && !exact);
        tally.wrongly_denied += u64::from(!passed && exact);
        tally.denied_below += u64::from(!passed && asked <= self.never_denied_up_to);
        if exact {
            self.exact.add(hits, now);
            tally.exact_admitted += hits;
        }
        if passed {
            tally.worst = tally
                .worst
                .max(self.admitted.within(self.window, now) + hits);
            self.admitted.add(hits, now);
            tally.admitted += hits;
        }
    }

    /// The totals so far.
    #[must_use]
    pub const fn tally(&self) -> &Tally {
        &self.tally
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entered(requests: &[(u64, u64, bool)]) -> Tally {
        let mut ledger = Ledger::new(Form::SlidingLog, 2, Micros::new(10));
        for &(at, hits, passed) in requests {
            ledger.enter(Timestamp::from_micros(100 + at), hits, passed);
        }
        *ledger.tally()
    }

    /// A window is open at its start: a hit at time 0 has left it at time 10.
    #[test]
    fn the_worst_window_is_half_open() {
        assert_eq!(entered(&[(0, 2, true), (9, 1, true)]).worst, 3);
        assert_eq!(entered(&[(0, 2, true), (10, 1, true)]).worst, 2);
    }

    #[test]
    fn each_limiter_keeps_its_own_admissions() {
        // Only the limiter denies the first; so the log has no room for the third, and the limiter
        // has.
        let tally = entered(&[(0, 1, false), (1, 1, true), (2, 1, true)]);
        assert_eq!((tally.wrongly_denied, tally.wrongly_allowed), (1, 1));
        assert_eq!((tally.admitted, tally.exact_admitted), (2, 2));
    }

    #[test]
    fn a_denial_below_the_limit_counts_everything_that_was_asked() {
        assert_eq!(entered(&[(0, 1, true), (1, 1, false)]).denied_below, 1);
        assert_eq!(entered(&[(0, 2, false), (1, 1, false)]).denied_below, 1);
        assert_eq!(entered(&[(0, 3, false), (10, 2, true)]).denied_below, 0);
    }
}
