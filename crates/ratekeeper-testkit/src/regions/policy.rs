//! The asks of a region's nodes: for how much, and of whom. No promise depends on them.

use ratekeeper_core::Micros;
use ratekeeper_core::region::loans::{Asking, AskingTimes, forecast, lack};

use super::plan::{Kind, RegionPlan, SECOND};
use super::region::{Loans, Needs, Region};

/// An ask to be made.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wanted {
    pub(super) peer: usize,
    pub(super) now: u64,
    pub(super) next: u64,
    /// The hits to hold less of the peer.
    pub(super) release: u64,
    /// The hits that the peer should give back.
    pub(super) recall: u64,
}

impl RegionPlan {
    pub(super) fn asking_times(&self) -> AskingTimes {
        let round_trip = self.round_trip();
        AskingTimes {
            interval: Micros::new((self.window / 50).clamp(SECOND / 10, SECOND)),
            backoff_max: Micros::new((8 * round_trip).max(self.window / 2).min(10 * SECOND)),
            soon: Micros::new((4 * round_trip).max(self.window / 8).min(5 * SECOND)),
            timeout: Micros::new(self.timeout),
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
        let rate = std::mem::take(&mut self.seen) * 1_000 * SECOND / span;
        self.rate = (self.rate * plan.memory + rate * span) / (plan.memory + span);
        self.measured_at = time;
    }

    /// The hits to provide for in `span`.
    fn forecast(&self, span: u64) -> u64 {
        forecast(self.rate * span / (1_000 * SECOND))
    }

    /// The time until the window that is counted ends.
    fn left(&self, plan: &RegionPlan, time: u64) -> u64 {
        let end = (self.kept.counter.window() + 1) * plan.window;
        end.saturating_sub(self.clock.now(time).as_micros())
    }

    pub(super) fn needs(&self, plan: &RegionPlan, time: u64) -> Needs {
        let left = self.left(plan, time);
        Needs {
            now: self.kept.counter.count(plan, self.clock.now(time)) + self.forecast(left),
            next: self.forecast(plan.window),
        }
    }

    /// The hits that it lacks now, and from now on.
    fn lacks(&self, plan: &RegionPlan, time: u64) -> (u64, u64) {
        let needs = self.needs(plan, time);
        match &self.kept.loans {
            Loans::Windows(loans) => {
                let window = self.kept.counter.window();
                let now = match self.left(plan, time) > plan.round_trip() {
                    true => needs.now.saturating_sub(loans.share(window)),
                    false => 0,
                };
                (
                    now.min(plan.limit),
                    lack(needs.next, loans.share(window + 1)).min(plan.limit),
                )
            }
            Loans::Timed(loans) => {
                let share = loans.share();
                let soon = match plan.kind {
                    Kind::Log => {
                        self.kept.counter.count(plan, self.clock.now(time))
                            + self.forecast(plan.window.min(4 * plan.round_trip()))
                    }
                    _ => 0,
                };
                let need = needs.next.max(soon.min(2 * needs.next));
                (0, lack(need, share).min(plan.limit))
            }
        }
    }

    /// The asks that are due. `plan.shares` says what each peer is taken to spare before it has told.
    pub(super) fn wanted(&mut self, plan: &RegionPlan, own: usize, time: u64) -> Vec<Wanted> {
        let (now, next) = self.lacks(plan, time);
        let need = self.needs(plan, time).next;
        let share = match &self.kept.loans {
            Loans::Windows(loans) => loans.share(self.kept.counter.window() + 1),
            Loans::Timed(loans) => loans.share(),
        };
        let recall = self.owns.min(need).saturating_sub(share);
        let times = plan.asking_times();
        let boot = self.clock.boot(time);
        for (peer, asking) in self.asking.iter_mut().enumerate() {
            asking.get_or_insert_with(|| Asking::new(plan.shares[peer], &times));
        }
        let spare = |asking: &Option<Asking>| asking.map_or(0, |it| it.spare) + 1;
        let others = self
            .asking
            .iter()
            .enumerate()
            .filter(|(peer, _)| *peer != own);
        let sum: u64 = others.map(|(_, asking)| spare(asking)).sum();
        let mut wanted = Vec::new();
        for peer in (0..plan.regions()).filter(|peer| *peer != own) {
            let part = spare(&self.asking[peer]);
            let (holds, lends, renews) = self.loan(plan, peer, time);
            let may = self.asking[peer]
                .as_mut()
                .is_some_and(|asking| asking.may_ask(boot, now > 0, &times));
            let recall = if lends { recall } else { 0 };
            let lacks = now > 0 || next > 0;
            if !may || !(lacks || renews || recall > 0) {
                continue;
            }
            let gives_back = renews && !lacks && holds;
            wanted.push(Wanted {
                peer,
                now: (now * part).div_ceil(sum),
                next: (next * part).div_ceil(sum),
                release: if gives_back {
                    share.saturating_sub(need.max(self.owns))
                } else {
                    0
                },
                recall,
            });
        }
        wanted
    }

    /// Returns true for each that it does with `peer`: holding a loan, lending one, having to renew one.
    fn loan(&self, plan: &RegionPlan, peer: usize, time: u64) -> (bool, bool, bool) {
        match &self.kept.loans {
            Loans::Windows(loans) => {
                let window = self.kept.counter.window();
                let loan = &loans.peers[peer];
                let holds = loan.held.next > 0;
                let left = loan.held.last.saturating_sub(window);
                let renews = holds && left <= plan.terms.windows() / 2;
                (holds, loan.lent.at(window + 1) > 0, renews)
            }
            Loans::Timed(loans) => {
                let loan = &loans.peers[peer];
                let holds = loan.held.amount > 0;
                let left = loan.held.until.since(self.clock.now(time));
                let renews = holds && left < Micros::new(plan.terms.time.get() / 2);
                (holds, loan.lent.amount > 0, renews)
            }
        }
    }
}
