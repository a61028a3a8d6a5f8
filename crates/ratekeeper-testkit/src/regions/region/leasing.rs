//! Hits that a node of a region holds in a lease: they count as used, and are charged in full when it ends.

use ratekeeper_core::region::loans::DRIFT_PPM;
use ratekeeper_core::{Micros, Timestamp};

use super::{Loans, Region};
use crate::regions::plan::{RegionGuard, RegionPlan};

/// A lease as the store keeps it.
#[derive(Clone, Copy, Debug)]
pub(in crate::regions) struct Lease {
    amount: u64,
    /// Its end, by the store's clock.
    end: Timestamp,
}

/// The same as the node has it, which spends it without asking.
#[derive(Clone, Copy, Default, Debug)]
pub(in crate::regions) struct Credit {
    left: u64,
    /// By the node's boot clock.
    deadline: Micros,
}

impl Region {
    /// Charges a lease that is over.
    pub(super) fn expire_lease(&mut self, plan: &RegionPlan, now: Timestamp) {
        if let Some(lease) = self.kept.lease.filter(|lease| lease.end <= now) {
            self.kept.lease = None;
            let share = self.share(plan);
            let counter = &mut self.kept.counter;
            counter.charge(plan, share, lease.amount, lease.end);
        }
    }

    /// The hits that a lease holds.
    pub(super) fn leased(&self, plan: &RegionPlan) -> u64 {
        match self.kept.lease {
            Some(lease) if plan.has(RegionGuard::Leased) => lease.amount,
            _ => 0,
        }
    }

    /// Takes hits from the lease, if it has them.
    pub(super) fn spend(&mut self, hits: u64, time: u64) -> bool {
        let has_them = self.credit.left >= hits && self.clock.boot(time) < self.credit.deadline;
        if has_them {
            self.credit.left -= hits;
        }
        has_them
    }

    /// Takes a lease of a quarter of the share, if there is room for it and none is out. It ends with its window, or before
    /// any part of a log's share does.
    pub(super) fn take_lease(&mut self, plan: &RegionPlan, time: u64) {
        let (share, now) = (self.share(plan), self.clock.now(time));
        let room = self.kept.counter.room(plan, share, now);
        let amount = (share / 4).min(room / 2);
        if plan.lease == 0 || self.kept.lease.is_some() || amount == 0 {
            return;
        }
        let most = now.after(Micros::new(plan.lease)).as_micros();
        let end = match &self.kept.loans {
            Loans::Timed(loans) => {
                let held = loans.peers.iter().map(|peer| peer.held);
                let ends = held.filter(|held| held.amount > 0);
                ends.fold(most, |end, held| end.min(held.until.as_micros() - 1))
            }
            Loans::Windows(_) => most.min((self.kept.counter.window() + 1) * plan.window),
        };
        let usable = end.saturating_sub(now.as_micros());
        if usable == 0 {
            return;
        }
        self.kept.lease = Some(Lease {
            amount,
            end: Timestamp::from_micros(end),
        });
        self.replicate();
        let usable = usable - (usable * 2 * DRIFT_PPM).div_ceil(1_000_000);
        self.credit = Credit {
            left: amount,
            deadline: Micros::new(self.clock.boot(time).get() + usable),
        };
    }

    /// Returns true if a lease is out that would end after some part of the share.
    pub(super) fn is_outlasted(&self) -> bool {
        let (Some(lease), Loans::Timed(loans)) = (self.kept.lease, &self.kept.loans) else {
            return false;
        };
        let mut held = loans.peers.iter().map(|peer| peer.held);
        held.any(|held| held.amount > 0 && held.until <= lease.end)
    }
}
