//! One region: its store, with what a failover can lose, and the memory of its nodes.

use std::collections::BTreeMap;

use ratekeeper_core::Micros;
use ratekeeper_core::region::loans::{
    Asking, DRIFT_PPM, TimedAnswer, TimedAsk, TimedFacts, TimedLoans, TimedUse, WindowAnswer,
    WindowAsk, WindowFacts, WindowLoans,
};

use super::clock::Clock;
use super::counter::Counter;
use super::plan::{Kind, RegionGuard, RegionPlan};

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
}

/// The needs of a region, as its nodes know them.
#[derive(Clone, Copy, Debug)]
pub(super) struct Needs {
    pub(super) now: u64,
    pub(super) next: u64,
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
    pub(super) asking: Vec<Option<Asking>>,
    pub(super) unchanged: Vec<Option<(u64, Micros)>>,
    /// Requests a second, in thousandths, and those since it was measured.
    pub(super) rate: u64,
    pub(super) seen: u64,
    pub(super) measured_at: u64,
    pub(super) urgent_at: u64,
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
            },
            replica: None,
            generation: 0,
            back: 0,
            is_alive: true,
            is_up: true,
            used: BTreeMap::new(),
            unreplicated: 0,
            asking: vec![None; regions],
            unchanged: vec![None; regions],
            rate: 0,
            seen: 0,
            measured_at: 0,
            urgent_at: 0,
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
                (is_settled && has_left(span)).then_some(0)
            }
        }
    }

    /// Decides a request.
    pub(super) fn decide(&mut self, plan: &RegionPlan, hits: u64, time: u64) -> bool {
        self.sync(plan, time);
        let (share, now) = (self.share(plan), self.clock.now(time));
        let fits = self.kept.counter.take(plan, share, hits, now);
        if fits {
            if plan.keeps_hits {
                self.replicate();
            } else {
                self.unreplicated += hits;
            }
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
        let names = (1, plan.regions());
        // Without a protection there can be numbers that no store keeps.
        match &mut self.kept.loans {
            Loans::Windows(loans) => {
                let window = self.kept.counter.window();
                if let Some(bytes) = loans.encode(window, names.0) {
                    let read = WindowLoans::decode(&bytes, loans.owns, names);
                    let read = read.expect("what was written is read");
                    loans.peers = read.peers;
                }
            }
            Loans::Timed(loans) => {
                if let Some(bytes) = loans.encode(self.generation, names.0) {
                    let read = TimedLoans::decode(&bytes, loans.owns, names);
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

    pub(super) fn ask_windows(
        &mut self,
        plan: &RegionPlan,
        peer: usize,
        wants: (u64, u64),
    ) -> Option<WindowAsk> {
        let window = self.kept.counter.window();
        let Loans::Windows(loans) = &mut self.kept.loans else {
            return None;
        };
        let ask = loans.ask(peer, window, wants);
        self.replicate_loans(plan);
        Some(ask)
    }

    pub(super) fn ask_timed(
        &mut self,
        plan: &RegionPlan,
        (peer, want): (usize, u64),
        time: u64,
    ) -> Option<TimedAsk> {
        let now = self.clock.now(time);
        let Loans::Timed(loans) = &mut self.kept.loans else {
            return None;
        };
        if !plan.has(RegionGuard::Tail) {
            loans.peers[peer].held.tail = 0;
        }
        let window = (plan.kind == Kind::Log).then_some(plan.terms.window);
        let ask = loans.ask(peer, want, window, now);
        self.replicate_loans(plan);
        Some(ask)
    }

    pub(super) fn lend_windows(
        &mut self,
        plan: &RegionPlan,
        (peer, ask): (usize, &WindowAsk),
        (needs, time): (Needs, u64),
    ) -> Option<WindowAnswer> {
        let now = self.clock.now(time);
        let counter = &self.kept.counter;
        let (window, count) = (counter.window(), counter.count(plan, now));
        let Loans::Windows(loans) = &mut self.kept.loans else {
            return None;
        };
        let lent = &mut loans.peers[peer].lent;
        if !plan.has(RegionGuard::OldAsks) {
            lent.number = ask.number - 1;
        }
        if !plan.has(RegionGuard::KeptPieces) {
            lent.pieces.retain(|piece| piece.last >= ask.first);
            for piece in &mut lent.pieces {
                piece.first = piece.first.max(ask.first);
            }
        }
        let windows = plan.terms.windows();
        if !plan.has(RegionGuard::Renewals) {
            let last = ask.first + windows;
            // As if what was lent lasted that long already.
            let held = lent.at(ask.first + 1);
            lent.pieces.retain(|piece| piece.last < last);
            let from = lent
                .pieces
                .iter()
                .map(|piece| piece.last + 1)
                .max()
                .unwrap_or(ask.first);
            lent.pieces.push(ratekeeper_core::region::loans::LentPiece {
                first: from.min(last),
                last,
                amount: held.max(ask.hold_next),
            });
        }
        let has_room = plan.has(RegionGuard::Room);
        let facts = WindowFacts {
            window,
            count: if has_room { count } else { 0 },
            need_now: if has_room { needs.now } else { 0 },
            need_next: needs.next,
            floor: plan.floor(self.owns),
            windows,
        };
        let answer = loans.lend(peer, ask, &facts).ok();
        self.replicate_loans(plan);
        answer
    }

    pub(super) fn lend_timed(
        &mut self,
        plan: &RegionPlan,
        (peer, ask): (usize, &TimedAsk),
        (needs, time): (Needs, u64),
    ) -> Option<TimedAnswer> {
        let (before, now) = (self.share(plan), self.clock.now(time));
        let counter = &self.kept.counter;
        let used = match plan.kind {
            Kind::Bucket => TimedUse::Bucket(counter.level(plan, before, now)),
            _ if !plan.has(RegionGuard::Room) => TimedUse::Log(0),
            _ => TimedUse::Log(counter.count(plan, now)),
        };
        let Loans::Timed(loans) = &mut self.kept.loans else {
            return None;
        };
        let lent = &mut loans.peers[peer].lent;
        let is_new = ask.number > lent.number;
        if !plan.has(RegionGuard::OldAsks) {
            lent.number = ask.number - 1;
        }
        if !plan.has(RegionGuard::LateAsks) && is_new {
            lent.amount = lent.amount.max(ask.hold);
        }
        let facts = TimedFacts {
            used,
            need: needs.next,
            floor: plan.floor(self.owns),
        };
        let answer = loans.lend(peer, ask, &facts).ok()?;
        if is_new {
            let leaves = plan.has(RegionGuard::Tokens);
            let tokens = if leaves { answer.tokens } else { 0 };
            self.resize(plan, before, tokens.cast_signed(), time);
        }
        self.replicate_loans(plan);
        Some(answer)
    }

    /// Takes the answer, if it is to the latest ask; returns true if it gave something.
    pub(super) fn accept_windows(
        &mut self,
        plan: &RegionPlan,
        peer: usize,
        answer: &WindowAnswer,
    ) -> bool {
        let window = self.kept.counter.window();
        let Loans::Windows(loans) = &mut self.kept.loans else {
            return false;
        };
        let loan = &mut loans.peers[peer];
        if !plan.has(RegionGuard::LatestAnswer) {
            loan.asked = answer.number;
        }
        let before = loan.held;
        let is_taken = loans.accept(peer, answer);
        let after = loans.peers[peer].held;
        self.keep(plan);
        is_taken && (after.next > before.next || after.at(window) > before.at(window))
    }

    pub(super) fn accept_timed(
        &mut self,
        plan: &RegionPlan,
        (peer, answer): (usize, &TimedAnswer),
        elapsed: Micros,
        time: u64,
    ) -> bool {
        let (share, now) = (self.share(plan), self.clock.now(time));
        let elapsed = match plan.has(RegionGuard::FromSending) {
            true => elapsed,
            false => Micros::ZERO,
        };
        let Loans::Timed(loans) = &mut self.kept.loans else {
            return false;
        };
        let loan = &mut loans.peers[peer];
        if !plan.has(RegionGuard::LatestAnswer) {
            loan.asked = answer.number;
        }
        let before = loan.held.amount;
        let is_taken = loans.accept(peer, answer, (elapsed, &plan.terms), (now, self.generation));
        if is_taken {
            self.resize(plan, share, -answer.tokens.cast_signed(), time);
            self.keep(plan);
        }
        is_taken && answer.amount > before
    }

    /// Holds up to `hits` less of `peer`; returns true if it does.
    pub(super) fn release(
        &mut self,
        plan: &RegionPlan,
        (peer, hits): (usize, u64),
        time: u64,
    ) -> bool {
        let (share, now) = (self.share(plan), self.clock.now(time));
        let counter = &self.kept.counter;
        let (window, count) = (counter.window(), counter.count(plan, now));
        let is_less = match &mut self.kept.loans {
            Loans::Windows(loans) => {
                let before = loans.peers[peer].held;
                loans.release(peer, hits, (window, count));
                let after = loans.peers[peer].held;
                [window, window + 1]
                    .iter()
                    .any(|at| after.at(*at) < before.at(*at))
            }
            Loans::Timed(loans) => {
                let before = loans.peers[peer].held;
                let count = (plan.kind == Kind::Log).then_some(count);
                loans.release(peer, hits, count);
                loans.peers[peer].held != before
            }
        };
        self.resize(plan, share, 0, time);
        is_less
    }

    /// Takes back loans that were unchanged for their time; returns the borrowers.
    pub(super) fn regain(&mut self, plan: &RegionPlan, time: u64) -> Vec<usize> {
        let (share, boot) = (self.share(plan), self.clock.boot(time).get());
        let terms = &plan.terms;
        let after = match plan.kind {
            Kind::Log if plan.has(RegionGuard::LogWindow) => plan.window,
            _ => 0,
        };
        let wait = terms.time.get() + terms.margin.get() + after;
        let Loans::Timed(loans) = &mut self.kept.loans else {
            return Vec::new();
        };
        let mut regained = Vec::new();
        for (peer, unchanged) in self.unchanged.iter_mut().enumerate() {
            let lent = loans.peers[peer].lent;
            match unchanged {
                _ if lent.amount == 0 => *unchanged = None,
                Some((number, since)) if *number == lent.number => {
                    if boot >= since.get() + wait && loans.regain(peer, lent.number) {
                        regained.push(peer);
                    }
                }
                _ => *unchanged = Some((lent.number, Micros::new(boot))),
            }
        }
        self.resize(plan, share, 0, time);
        regained
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
        self.asking.fill(None);
        self.unchanged.fill(None);
        if is_cold {
            self.sync(plan, time);
            if plan.has(RegionGuard::ColdStart) {
                self.generation += 1;
            }
        }
    }
}

impl RegionPlan {
    /// The hits of its own share that a region never lends.
    fn floor(&self, owns: u64) -> u64 {
        (owns * self.floor).div_ceil(100)
    }
}
