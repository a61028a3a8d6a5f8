//! One region: its store, with what a failover can lose, and the memory of its nodes.

mod leasing;
mod lending;

use std::collections::BTreeMap;

use ratekeeper_core::Micros;
use ratekeeper_core::region::loans::{DRIFT_PPM, LoanAsking, LoanRegions, TimedLoans, WindowLoans};

use super::clock::Clock;
use super::counter::Counter;
use super::plan::{Kind, RegionGuard, RegionPlan};
use leasing::{Credit, Lease};

/// The names of as many regions as there are at most.
const NAMES: [&str; 5] = ["ap", "eu", "jp", "sa", "us"];

/// The loans of the counter, by its kind.
#[derive(Clone, Debug)]
pub(super) enum Loans {
    Windows(WindowLoans),
    Timed(TimedLoans),
}

/// The contents of the region's store.
#[derive(Clone, Debug)]
pub(super) struct Kept {
    pub(super) counter: Counter,
    pub(super) loans: Loans,
    /// Hits that a node may admit without asking.
    pub(super) lease: Option<Lease>,
}

#[derive(Debug)]
pub(super) struct Region {
    /// The share that it owns; while weights change, the smaller one.
    pub(super) owns: u64,
    /// The window from which on it owns a larger share, and that share; a log and a bucket own it at once.
    pub(super) grows: Option<(u64, u64)>,
    /// The window in which it learned of new weights, and the time by its boot clock.
    pub(super) learned: Option<(u64, Micros)>,
    pub(super) clock: Clock,
    pub(super) kept: Kept,
    /// The contents of a replica's store, while one may take over.
    pub(super) replica: Option<Kept>,
    /// The number of times that the region's nodes stopped to trust what they knew of the store's clock.
    pub(super) generation: u64,
    back: u64,
    pub(super) is_alive: bool,
    /// False while its store does not answer.
    pub(super) is_up: bool,
    /// Hits admitted in windows that are over, for the judge.
    pub(super) used: BTreeMap<u64, u64>,
    /// Hits admitted that the replica does not have.
    pub(super) unreplicated: u64,
    /// The memory of its nodes: asks, and the numbers of loans with the time since which they are unchanged.
    pub(super) asking: LoanAsking,
    pub(super) unchanged: Vec<Option<(u64, Micros)>>,
    /// Hits a second, in thousandths, and those since it was measured: asked for, and admitted.
    pub(super) rate: u64,
    pub(super) seen: u64,
    pub(super) used_rate: u64,
    pub(super) admitted: u64,
    pub(super) measured_at: u64,
    /// The time of the next look at what it lacks.
    pub(super) look_at: u64,
    /// The lease, as the node has it.
    credit: Credit,
}

impl Region {
    pub(super) fn new(plan: &RegionPlan, owns: u64, clock: Clock) -> Self {
        let regions = plan.regions();
        let loans = match plan.kind {
            Kind::Windows => Loans::Windows(WindowLoans::new(owns, regions)),
            Kind::Log | Kind::Bucket => Loans::Timed(TimedLoans::new(owns, regions)),
        };
        Self {
            owns,
            grows: None,
            learned: None,
            clock,
            kept: Kept {
                counter: Counter::new(plan),
                loans,
                lease: None,
            },
            replica: None,
            generation: 0,
            back: 0,
            is_alive: true,
            is_up: true,
            used: BTreeMap::new(),
            unreplicated: 0,
            asking: LoanAsking::new(regions, plan.asking_times()),
            unchanged: vec![None; regions],
            rate: 0,
            seen: 0,
            used_rate: 0,
            admitted: 0,
            measured_at: 0,
            look_at: 0,
            credit: Credit::default(),
        }
    }

    /// Returns true if its nodes can reach its store.
    pub(super) const fn answers(&self) -> bool {
        self.is_alive && self.is_up
    }

    /// The share that the counter is under now.
    pub(super) fn share(&self, plan: &RegionPlan) -> u64 {
        match &self.kept.loans {
            Loans::Windows(loans) => {
                let window = self.kept.counter.window();
                loans.share(match plan.has(RegionGuard::WindowNumbers) {
                    true => window,
                    // What was said last, for whatever window.
                    false => window + 1,
                })
            }
            Loans::Timed(loans) => loans.share(),
        }
    }

    /// Drops loans that are over, and rolls the counter, as every script does first.
    pub(super) fn sync(&mut self, plan: &RegionPlan, time: u64) {
        self.own();
        let now = self.clock.now(time);
        while let Loans::Timed(loans) = &mut self.kept.loans {
            let Some((peer, end)) = loans.over(now, self.generation) else {
                break;
            };
            let before = loans.share();
            loans.drop_held(peer, end);
            let shares = (before, loans.share());
            self.kept.counter.lower(plan, shares, end);
        }
        self.expire_lease(plan, now);
        let ended = self.kept.counter.roll(now);
        self.used.extend(ended);
    }

    /// Puts a bucket under the share that it has now, after `before`, while tokens leave it.
    fn resize(&mut self, plan: &RegionPlan, before: u64, tokens: i64, time: u64) {
        let shares = match plan.has(RegionGuard::Level) {
            true => (before, self.share(plan)),
            false => (before, before),
        };
        let now = self.clock.now(time);
        self.kept.counter.resize(plan, shares, tokens, now);
    }

    /// Puts the share that the nodes know into the store's records.
    const fn own(&mut self) {
        match &mut self.kept.loans {
            Loans::Windows(loans) => (loans.owns, loans.grows) = (self.owns, self.grows),
            Loans::Timed(loans) => loans.owns = self.owns,
        }
    }

    /// Owns the smaller of its share and the one by new weights.
    pub(super) fn learn(&mut self, plan: &RegionPlan, owns: u64, time: u64) {
        self.sync(plan, time);
        let before = self.share(plan);
        self.owns = self.owns.min(owns);
        self.learned = Some((self.kept.counter.window(), self.clock.boot(time)));
        self.own();
        self.resize(plan, before, 0, time);
    }

    /// Owns the share by new weights, which is larger, from `window` on.
    pub(super) fn grow(&mut self, plan: &RegionPlan, (window, owns): (u64, u64), time: u64) {
        self.sync(plan, time);
        let before = self.share(plan);
        match plan.kind {
            Kind::Windows => self.grows = Some((window, owns)),
            Kind::Log | Kind::Bucket => self.owns = owns,
        }
        self.own();
        self.resize(plan, before, 0, time);
    }

    /// The window from which on others may own more, if that can be told now.
    pub(super) fn report(&self, plan: &RegionPlan, time: u64) -> Option<u64> {
        let (window, learned) = self.learned?;
        let has_left = |span: u64| {
            let least = learned.get() + span + span * 2 * DRIFT_PPM / 1_000_000;
            self.clock.boot(time).get() >= least || !plan.has(RegionGuard::OldHits)
        };
        match &self.kept.loans {
            Loans::Windows(_) if !plan.has(RegionGuard::Overlent) => Some(window + 1),
            Loans::Windows(_) if !plan.has(RegionGuard::OldHits) => Some(window),
            Loans::Windows(loans) => Some(loans.settled_from(window)),
            Loans::Timed(loans) => {
                let is_settled = loans.is_settled() || !plan.has(RegionGuard::Overlent);
                let span = if plan.kind == Kind::Log {
                    plan.window
                } else {
                    0
                };
                // What a lease holds is used until it ends.
                (is_settled && has_left(span + plan.lease)).then_some(0)
            }
        }
    }

    /// Decides a request.
    pub(super) fn decide(&mut self, plan: &RegionPlan, hits: u64, time: u64) -> bool {
        self.sync(plan, time);
        let fits = self.spend(hits, time) || self.take(plan, hits, time);
        if fits {
            self.admitted += hits;
        }
        fits
    }

    /// Takes hits out of the counter, if they fit.
    fn take(&mut self, plan: &RegionPlan, hits: u64, time: u64) -> bool {
        let (share, now) = (self.share(plan), self.clock.now(time));
        let held = self.leased(plan);
        let counter = &mut self.kept.counter;
        let fits = counter.room(plan, share, now) >= hits + held;
        if fits {
            counter.charge(plan, share, hits, now);
            if plan.keeps_hits {
                self.replicate();
            } else {
                self.unreplicated += hits;
            }
            self.take_lease(plan, time);
        }
        fits
    }

    /// Waits until the replica that may take over has all.
    pub(super) fn replicate(&mut self) {
        if self.replica.is_some() {
            self.replica = Some(self.kept.clone());
            self.unreplicated = 0;
        }
    }

    /// Writes the loans into the store, and reads them again: in the form in which a store keeps them.
    fn keep(&mut self, plan: &RegionPlan) {
        let regions = LoanRegions::named(NAMES.into_iter().take(plan.regions()));
        // Without a protection there can be numbers that no store keeps.
        match &mut self.kept.loans {
            Loans::Windows(loans) => {
                let window = self.kept.counter.window();
                if let Some(bytes) = loans.encode(window, &regions) {
                    let read = WindowLoans::decode(&bytes, loans.owns, &regions);
                    let read = read.expect("what was written is read");
                    loans.peers = read.peers;
                }
            }
            Loans::Timed(loans) => {
                if let Some(bytes) = loans.encode(self.generation, &regions) {
                    let read = TimedLoans::decode(&bytes, loans.owns, &regions);
                    *loans = read.expect("what was written is read");
                }
            }
        }
    }

    /// The same for an ask or an answer that is about to leave.
    fn replicate_loans(&mut self, plan: &RegionPlan) {
        self.keep(plan);
        if plan.has(RegionGuard::Replicated) {
            self.replicate();
        }
    }

    /// The replica takes over; returns the hits that it never had.
    pub(super) fn fail_over(&mut self) -> u64 {
        let Some(replica) = self.replica.take() else {
            return 0;
        };
        self.kept = replica;
        self.own();
        std::mem::take(&mut self.unreplicated)
    }

    /// Its store's clock steps, and its nodes see it.
    pub(super) fn step(&mut self, plan: &RegionPlan, by: i64) {
        self.clock.offset += by;
        self.back += u64::try_from(-by).unwrap_or(0);
        if self.back > plan.terms.margin.get() / 4 && plan.has(RegionGuard::Generation) {
            self.generation += 1;
            self.back = 0;
        }
    }

    /// Its nodes restart. With no node left that knows since when, loans count only once their lenders answered again.
    pub(super) fn restart(&mut self, plan: &RegionPlan, is_cold: bool, time: u64) {
        self.asking = LoanAsking::new(plan.regions(), plan.asking_times());
        self.credit = Credit::default();
        self.unchanged.fill(None);
        if is_cold {
            self.sync(plan, time);
            if plan.has(RegionGuard::ColdStart) {
                self.generation += 1;
            }
        }
    }
}
