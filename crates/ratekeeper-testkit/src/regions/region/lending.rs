//! Asks and answers of a region, as its nodes carry them out in its store.

use ratekeeper_core::region::loans::{
    LentPiece, LoanNeeds, TimedAnswer, TimedAsk, TimedFacts, TimedUse, WindowAnswer, WindowAsk,
    WindowFacts,
};
use ratekeeper_core::{Micros, Timestamp, Whole};

use super::{Loans, Region};
use crate::regions::plan::{Kind, RegionGuard, RegionPlan};

impl Region {
    /// The hits of a window or a log that are used: those counted, and those that a node holds.
    pub(in crate::regions) fn used(&self, plan: &RegionPlan, now: Timestamp) -> u64 {
        self.kept.counter.count(plan, now) + self.leased(plan)
    }

    pub(in crate::regions) fn ask_windows(
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

    pub(in crate::regions) fn ask_timed(
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

    pub(in crate::regions) fn lend_windows(
        &mut self,
        plan: &RegionPlan,
        (peer, ask): (usize, &WindowAsk),
        (needs, time): (LoanNeeds, u64),
    ) -> Option<WindowAnswer> {
        let now = self.clock.now(time);
        let counter = &self.kept.counter;
        let (window, count) = (counter.window(), self.used(plan, now));
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
            lent.pieces.push(LentPiece {
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

    pub(in crate::regions) fn lend_timed(
        &mut self,
        plan: &RegionPlan,
        (peer, ask): (usize, &TimedAsk),
        (needs, time): (LoanNeeds, u64),
    ) -> Option<TimedAnswer> {
        let (before, now) = (self.share(plan), self.clock.now(time));
        let counter = &self.kept.counter;
        let used = match plan.kind {
            Kind::Bucket => {
                let level = counter.level(plan, before, now);
                TimedUse::Bucket(level, Whole::of(&plan.whole()))
            }
            _ if !plan.has(RegionGuard::Room) => TimedUse::Log(0),
            _ => TimedUse::Log(self.used(plan, now)),
        };
        let Loans::Timed(loans) = &mut self.kept.loans else {
            return None;
        };
        let lent = &mut loans.peers[peer].lent;
        let is_new = ask.number > lent.number;
        let mut ask = *ask;
        if !plan.has(RegionGuard::Taken) {
            ask.taken = Some(0);
        }
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
        let reply = loans.lend(peer, &ask, &facts).ok()?;
        if is_new {
            let leaves = plan.has(RegionGuard::Tokens);
            let leaving = if leaves { reply.leaving } else { 0 };
            self.resize(plan, before, leaving, time);
        }
        self.replicate_loans(plan);
        Some(reply.answer)
    }

    /// Takes the answer, if it is to the latest ask; returns true if it gave something.
    pub(in crate::regions) fn accept_windows(
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

    pub(in crate::regions) fn accept_timed(
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
        let kept = loans.clone();
        let before = kept.peers[peer].held.amount;
        let is_taken = loans.accept(peer, answer, (elapsed, &plan.terms), (now, self.generation));
        if is_taken && self.is_outlasted() {
            self.kept.loans = Loans::Timed(kept);
            return false;
        }
        if is_taken {
            self.resize(plan, share, -answer.tokens.cast_signed(), time);
            self.keep(plan);
        }
        is_taken && answer.amount > before
    }

    /// Returns true if it holds hits of `peer`.
    pub(in crate::regions) fn holds(&self, peer: usize) -> bool {
        let window = self.kept.counter.window();
        match &self.kept.loans {
            Loans::Windows(loans) => {
                let held = &loans.peers[peer].held;
                held.at(window) > 0 || held.at(window + 1) > 0
            }
            Loans::Timed(loans) => loans.peers[peer].held.amount > 0,
        }
    }

    /// Holds up to `hits` less of `peer`.
    pub(in crate::regions) fn release(
        &mut self,
        plan: &RegionPlan,
        (peer, hits): (usize, u64),
        time: u64,
    ) {
        let (share, now) = (self.share(plan), self.clock.now(time));
        let (window, count) = (self.kept.counter.window(), self.used(plan, now));
        match &mut self.kept.loans {
            Loans::Windows(loans) => loans.release(peer, hits, (window, count)),
            Loans::Timed(loans) => {
                let count = (plan.kind == Kind::Log).then_some(count);
                loans.release(peer, hits, count);
            }
        }
        self.resize(plan, share, 0, time);
    }

    /// Takes back loans that were unchanged for their time; returns the borrowers.
    pub(in crate::regions) fn regain(&mut self, plan: &RegionPlan, time: u64) -> Vec<usize> {
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
                    let answer = loans.peers[peer].answer;
                    if boot >= since.get() + wait && loans.regain(peer, lent.number) {
                        regained.push(peer);
                        if !plan.has(RegionGuard::OverTokens) {
                            loans.peers[peer].answer = answer;
                        }
                    }
                }
                _ => *unchanged = Some((lent.number, Micros::new(boot))),
            }
        }
        self.resize(plan, share, 0, time);
        regained
    }
}

impl RegionPlan {
    /// The hits of its own share that a region never lends.
    fn floor(&self, owns: u64) -> u64 {
        (owns * self.floor).div_ceil(100)
    }
}
