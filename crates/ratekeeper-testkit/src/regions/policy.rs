//! The asks of a region's nodes, as a node of the service makes them: for how much, and of whom. No promise depends on them.

use ratekeeper_core::Micros;
use ratekeeper_core::region::loans::{
    AskingTimes, LoanLook, LoanNeeds, LoanStanding, PeerLook, RegionUse, SeenDemand, WantedLoan,
};

use super::plan::{Kind, RegionPlan, SECOND};
use super::region::{Loans, Region};

impl RegionPlan {
    /// Messages that are late need asks that wait for them.
    pub(super) fn asking_times(&self) -> AskingTimes {
        AskingTimes {
            timeout: Micros::new(self.timeout),
            ..AskingTimes::of(Micros::new(self.window))
        }
    }
}

impl Region {
    /// Measures the traffic since the last time.
    pub(super) fn measure(&mut self, plan: &RegionPlan, time: u64) {
        let span = time - self.measured_at;
        if span == 0 {
            return;
        }
        for (hits, average) in [
            (&mut self.seen, &mut self.rate),
            (&mut self.admitted, &mut self.used_rate),
        ] {
            let rate = std::mem::take(hits) * 1_000 * SECOND / span;
            *average = (*average * plan.memory + rate * span) / (plan.memory + span);
        }
        self.measured_at = time;
    }

    /// The time until the window that is counted ends.
    fn left(&self, plan: &RegionPlan, time: u64) -> Micros {
        let end = (self.kept.counter.window() + 1) * plan.window;
        Micros::new(end.saturating_sub(self.clock.now(time).as_micros()))
    }

    pub(super) fn needs(&self, plan: &RegionPlan, time: u64) -> LoanNeeds {
        let count = self.used(plan, self.clock.now(time));
        let used = match plan.kind {
            Kind::Windows => RegionUse::Windows {
                count,
                before: self.used_before(),
                left: self.left(plan, time),
            },
            Kind::Log => RegionUse::Log(count),
            Kind::Bucket => RegionUse::Bucket(self.used_rate),
        };
        let rate = self.rate / plan.nodes;
        SeenDemand { rate, used }.needs(Micros::new(plan.window))
    }

    /// The hits counted in the window before.
    fn used_before(&self) -> u64 {
        let before = self.kept.counter.window().checked_sub(1);
        let used = before.and_then(|window| self.used.get(&window));
        used.copied().unwrap_or(0)
    }

    fn standing(&self, plan: &RegionPlan, time: u64) -> LoanStanding {
        match &self.kept.loans {
            Loans::Windows(loans) => {
                let left = self.left(plan, time);
                loans.standing(self.kept.counter.window(), left, &plan.terms)
            }
            Loans::Timed(loans) => loans.standing(self.clock.now(time), &plan.terms),
        }
    }

    /// The asks that are due. A region that is cut off is asked, too: links do not tell.
    pub(super) fn wanted(&mut self, plan: &RegionPlan, own: usize, time: u64) -> Vec<WantedLoan> {
        let shares = plan.shares.iter().enumerate();
        let regions = shares.map(|(place, owns)| PeerLook {
            owns: *owns,
            is_reachable: place != own,
        });
        let look = LoanLook {
            needs: self.needs(plan, time),
            standing: &self.standing(plan, time),
            has_windows: plan.kind == Kind::Windows,
            regions: &regions.collect::<Vec<_>>(),
        };
        self.asking.wanted(&look, self.clock.boot(time))
    }
}
