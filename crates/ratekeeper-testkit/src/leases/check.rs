//! The promises that a run is held to.

use ratekeeper_core::{Arithmetic, Ask, Limit, Moment, Spill, State, Timestamp};

use super::store::LeaseStore;
use super::world::{Broken, World};

impl<S: LeaseStore> World<S> {
    /// In the window that is, no less is recorded than was admitted.
    pub(super) fn check_recorded(&self, at: &Moment) -> Result<(), Broken> {
        if self.plan.step_back > 0 {
            return Ok(());
        }
        let [limit] = self.plan.limits[..] else {
            return Ok(());
        };
        let Arithmetic::FixedWindow = limit.arithmetic() else {
            return Ok(());
        };
        let Some((recorded, start)) = self.store.window() else {
            return Ok(());
        };
        let in_window = |date: Timestamp| {
            date.as_micros() >= start && date.as_micros() < start + limit.window().get()
        };
        let admitted = self.admitted.iter().filter(|(date, _)| in_window(*date));
        let admitted: u64 = admitted.map(|(_, hits)| hits).sum();
        if admitted > recorded {
            return Err(format!(
                "{admitted} admitted, {recorded} recorded at {:?}",
                at.now
            ));
        }
        Ok(())
    }

    /// Every hit of the store is accounted for: admitted, granted, posted or given back.
    fn check_ledger(&self) -> Result<(), Broken> {
        if self.plan.failovers > 0 {
            // Charges that are burned, and returns, may be lost.
            return Ok(());
        }
        let granted: u64 = self.leases.values().map(|lease| lease.granted).sum();
        let admitted: u64 = self.admitted.iter().map(|(_, hits)| hits).sum();
        let charged = self.store.recorded() + self.returned;
        let posted: u64 = self.posts.values().sum();
        let known = granted + admitted - self.by_lease + posted;
        if charged != known {
            return Err(format!(
                "{charged} charged, {known} granted, admitted and posted"
            ));
        }
        Ok(())
    }

    /// Holds what was admitted to the limits.
    pub(crate) fn check(&mut self) -> Result<(), Broken> {
        self.check_ledger()?;
        self.check_outrun()?;
        if self.plan.step_back > 0 {
            return self.check_after_a_step();
        }
        self.admitted.sort_unstable();
        let largest = |limit: &&Limit| (limit.quota(), limit.capacity());
        let limit = self
            .plan
            .limits
            .iter()
            .max_by_key(largest)
            .expect("there is a limit");
        match limit.arithmetic() {
            Arithmetic::EqualCount(_) => self.check_windows(limit),
            _ => self.check_steps(limit),
        }
    }

    /// No window has more than an equal-count log lets pass; each change of the limit may leave hits of
    /// two groups out.
    fn check_windows(&self, limit: &Limit) -> Result<(), Broken> {
        let mut most = limit.most_in_any_window().unwrap_or(0);
        if self.plan.limits.len() > 1 {
            let groups = self
                .plan
                .limits
                .iter()
                .map(|limit| limit.most_in_any_window().unwrap_or(0) - limit.quota() + 1);
            most += groups.sum::<u64>();
        }
        let (mut oldest, mut sum) = (0, 0);
        for (date, hits) in &self.admitted {
            sum += hits;
            while self.admitted[oldest].0.after(limit.window()) <= *date {
                sum -= self.admitted[oldest].1;
                oldest += 1;
            }
            if sum > most {
                return Err(format!("{sum} of {most} in the window before {date:?}"));
            }
        }
        Ok(())
    }

    /// A clock that goes back once lets no more pass in a span as long as the window than twice what it
    /// does otherwise, and the hits that the step finds already admitted by the time it goes back to.
    fn check_after_a_step(&self) -> Result<(), Broken> {
        let limit = &self.plan.limits[0];
        let most = 2 * limit.most_in_any_window().unwrap_or(0);
        let mut dated = self.really.clone();
        dated.sort_unstable();
        let (mut oldest, mut sum) = (0, 0);
        for (time, hits) in &dated {
            sum += hits;
            while dated[oldest].0 + limit.window().get() <= *time {
                sum -= dated[oldest].1;
                oldest += 1;
            }
            if sum > most {
                return Err(format!("{sum} of {most} in the window before {time}"));
            }
        }
        Ok(())
    }

    /// Each hit that was admitted fits a counter that has seen all that were admitted before.
    fn check_steps(&self, limit: &Limit) -> Result<(), Broken> {
        let mut state = State::new(limit.shape());
        for (date, hits) in &self.admitted {
            let at = Moment::at(*date);
            let answer = limit.test(state.as_ref(), Ask::hits(*hits as i64), &at);
            if !answer.fits() {
                return Err(format!("{hits} at {date:?} do not fit: {answer:?}"));
            }
            if limit.charge(state.as_mut(), *hits as i64, &at) == Err(Spill) {
                if let State::Words(words) = &state {
                    state = State::Heap(limit.spill(words));
                }
                limit
                    .charge(state.as_mut(), *hits as i64, &at)
                    .expect("a heap never spills");
            }
        }
        Ok(())
    }
}
