//! The promise that a run is held to: no more is admitted than the limit.

use std::collections::BTreeMap;

use ratekeeper_core::{Arithmetic, Ask, Limit, Moment, Spill, State, Timestamp};

use super::store::LeaseStore;
use super::world::World;

impl<S: LeaseStore> World<S> {
    /// Hits that were admitted beyond the limit, and beyond what the store's clock lets pass when it is set.
    pub(super) fn excess(&mut self) -> u64 {
        let mut admitted = std::mem::take(&mut self.admitted);
        if self.plan.step_back + self.plan.step_forward > 0 {
            // In the order in which they were admitted, by a clock that does not go back.
            let mut latest = Timestamp::EPOCH;
            for (date, _) in &mut admitted {
                latest = latest.max(*date);
                *date = latest;
            }
        } else {
            admitted.sort_unstable();
        }
        let limit = self.plan.largest();
        let over = match limit.arithmetic() {
            Arithmetic::FixedWindow => over_windows(&limit, &admitted),
            Arithmetic::EqualCount(_) => self.over_groups(&limit, &admitted),
            Arithmetic::TokenBucket(_) => over_bucket(&limit, &admitted),
            _ => over_counter(&limit, &admitted),
        };
        over.saturating_sub(self.slack)
    }

    /// The most that is in any window beyond what an equal-count log lets pass, and a group; each change of the limit may
    /// leave hits of two groups out.
    fn over_groups(&self, limit: &Limit, admitted: &[(Timestamp, u64)]) -> u64 {
        let group = |limit: &Limit| limit.most_in_any_window().unwrap_or(0) - limit.capacity();
        let mut most = limit.capacity();
        most += match group(limit) {
            0 => 0,
            more => more + 1,
        };
        if self.plan.terms.len() > 1 {
            let groups = self.plan.terms.iter().map(|terms| group(terms.limit()) + 1);
            most += groups.sum::<u64>();
        }
        let (mut oldest, mut sum, mut worst) = (0, 0, 0);
        for (date, hits) in admitted {
            sum += hits;
            while admitted[oldest].0.after(limit.window()) <= *date {
                sum -= admitted[oldest].1;
                oldest += 1;
            }
            worst = worst.max(sum);
        }
        worst.saturating_sub(most)
    }
}

fn over_windows(limit: &Limit, admitted: &[(Timestamp, u64)]) -> u64 {
    let mut counts = BTreeMap::new();
    for (date, hits) in admitted {
        *counts
            .entry(date.as_micros() / limit.window().get())
            .or_insert(0) += hits;
    }
    let most: u64 = counts.into_values().max().unwrap_or(0);
    most.saturating_sub(limit.quota())
}

/// The most by which the hits of any span are more than the burst and what refills in it.
fn over_bucket(limit: &Limit, admitted: &[(Timestamp, u64)]) -> u64 {
    let (window, quota) = (u128::from(limit.window().get()), u128::from(limit.quota()));
    let full = u128::from(limit.capacity()) * window;
    let (mut level, mut worst, mut last) = (0, 0, None);
    for (date, hits) in admitted {
        let since = last.map_or(0, |last| date.since(last).get());
        level = u128::saturating_sub(level, u128::from(since) * quota);
        level += u128::from(*hits) * window;
        worst = worst.max(level.saturating_sub(full) / window);
        last = Some(*date);
    }
    u64::try_from(worst).unwrap_or(u64::MAX)
}

/// The most hits that do not fit a counter that has seen all that were admitted before.
fn over_counter(limit: &Limit, admitted: &[(Timestamp, u64)]) -> u64 {
    let (mut state, mut worst) = (State::new(limit.shape()), 0);
    for (date, hits) in admitted {
        let at = Moment::at(*date);
        let look = limit.test(state.as_ref(), Ask::hits(0), &at);
        worst = worst.max(hits.saturating_sub(look.remaining));
        if limit.charge(state.as_mut(), *hits as i64, &at) == Err(Spill) {
            if let State::Words(words) = &state {
                state = State::Heap(limit.spill(words));
            }
            let charged = limit.charge(state.as_mut(), *hits as i64, &at);
            charged.expect("a heap never spills");
        }
    }
    worst
}
