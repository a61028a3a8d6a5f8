//! Loans of fixed windows: what is lent, and to whom, is said for each window.

use std::cmp::Ordering;

use super::{RefusedAsk, part_of_spare};
use crate::RegionId;

/// The loans of one counter, as one region keeps them.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct WindowLoans {
    /// The share that the region owns; while weights change, the smaller of the old and the new one.
    pub owns: u64,
    /// The window from which on it owns a larger share, and that share.
    pub grows: Option<(u64, u64)>,
    /// The loans with each region, in the order of their names; the region's own is not used. Then those with regions that
    /// have left.
    pub peers: Vec<WindowLoan>,
    /// The regions that have left, in the order of their loans.
    pub left: Vec<RegionId>,
}

/// The loans between a region and one other.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct WindowLoan {
    /// The number of the latest ask that was made of the other.
    pub asked: u64,
    /// The hits that are held of the other's share.
    pub held: WindowHeld,
    /// The hits that the other may hold of this region's share.
    pub lent: WindowLent,
    /// The latest answer to the other, to be repeated when its ask is.
    pub answer: Option<WindowAnswer>,
}

/// Hits that are held: some in the first window, some in each one after it, up to the last.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct WindowHeld {
    /// The window in which `now` is held.
    pub first: u64,
    /// The hits in that window.
    pub now: u64,
    /// The hits in each later window.
    pub next: u64,
    /// The last of these.
    pub last: u64,
}

/// Hits that are lent.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct WindowLent {
    /// The number of the latest ask of the other that was answered.
    pub number: u64,
    /// Windows and the hits that are lent in each of them; no two overlap.
    pub pieces: Vec<LentPiece>,
}

/// Hits that are lent in each of some windows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LentPiece {
    /// The first window.
    pub first: u64,
    /// The last window; before the first in a piece of none.
    pub last: u64,
    /// The hits in each.
    pub amount: u64,
}

/// An ask. It says what the asker holds, so it also renews loans and gives hits back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WindowAsk {
    /// The number of the ask, which grows.
    pub number: u64,
    /// The asker's window.
    pub first: u64,
    /// The hits that it holds in that window.
    pub hold_now: u64,
    /// The hits that it holds in each later window.
    pub hold_next: u64,
    /// The hits that it lacks in its window.
    pub want_now: u64,
    /// The hits that it lacks in each later window.
    pub want_next: u64,
}

/// An answer: what the asker holds from now on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WindowAnswer {
    /// The number of the ask.
    pub number: u64,
    /// The hits that the asker holds.
    pub held: WindowHeld,
    /// The hits that the lender could still spare.
    pub spare: u64,
}

/// The state of a lender's own counter, and its needs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WindowFacts {
    /// The lender's window.
    pub window: u64,
    /// The hits counted in it, and those that nodes hold in leases.
    pub count: u64,
    /// The hits that the lender expects to need in this window, with those counted.
    pub need_now: u64,
    /// The hits that it expects to need in each later window.
    pub need_next: u64,
    /// The hits of its own share that it never lends.
    pub floor: u64,
    /// The windows for which a loan lasts beyond the first.
    pub windows: u64,
}

impl WindowHeld {
    /// The hits held in `window`.
    #[must_use]
    pub const fn at(&self, window: u64) -> u64 {
        if window == self.first {
            self.now
        } else if self.first < window && window <= self.last {
            self.next
        } else {
            0
        }
    }
}

impl WindowLent {
    /// The hits lent in `window`.
    #[must_use]
    pub fn at(&self, window: u64) -> u64 {
        let here = |piece: &&LentPiece| piece.first <= window && window <= piece.last;
        self.pieces
            .iter()
            .find(here)
            .map_or(0, |piece| piece.amount)
    }

    fn end(&self) -> Option<u64> {
        self.pieces.iter().map(|piece| piece.last).max()
    }
}

impl WindowLoans {
    /// No loans with any of `regions` regions.
    #[must_use]
    pub fn new(owns: u64, regions: usize) -> Self {
        Self {
            owns,
            grows: None,
            peers: vec![WindowLoan::default(); regions],
            left: Vec::new(),
        }
    }

    /// The share that the region owns in `window`.
    const fn owned(&self, window: u64) -> u64 {
        match self.grows {
            Some((from, owns)) if from <= window => owns,
            _ => self.owns,
        }
    }

    /// The first window after `window` from which on no more is lent than owned, after the share became smaller. Other
    /// regions may own more from then on.
    #[must_use]
    pub fn settled_from(&self, window: u64) -> u64 {
        let next = window + 1;
        if self.most_lent_from(next) <= self.owns {
            return next;
        }
        let ends = self.peers.iter().filter_map(|peer| peer.lent.end());
        ends.fold(next, |from, end| from.max(end + 1))
    }

    /// The share that the region enforces in `window`.
    #[must_use]
    pub fn share(&self, window: u64) -> u64 {
        let held: u64 = self.peers.iter().map(|peer| peer.held.at(window)).sum();
        self.owned(window)
            .saturating_sub(self.lent(window))
            .saturating_add(held)
    }

    /// The hits lent to all others in `window`.
    #[must_use]
    pub fn lent(&self, window: u64) -> u64 {
        self.peers.iter().map(|peer| peer.lent.at(window)).sum()
    }

    /// The most that is lent in any window from `from` on. More is lent only from the first window of a piece on, so only
    /// those are looked at.
    fn most_lent_from(&self, from: u64) -> u64 {
        let pieces = self.peers.iter().flat_map(|peer| &peer.lent.pieces);
        let starts = pieces
            .map(|piece| piece.first)
            .filter(|first| *first > from);
        let lent = starts.map(|window| self.lent(window));
        lent.fold(self.lent(from), u64::max)
    }

    /// The next ask of `peer`, by a region that is in `window` and lacks so many hits in it and in each later one.
    pub fn ask(
        &mut self,
        peer: usize,
        window: u64,
        (want_now, want_next): (u64, u64),
    ) -> WindowAsk {
        let loan = &mut self.peers[peer];
        loan.asked += 1;
        WindowAsk {
            number: loan.asked,
            first: window,
            hold_now: loan.held.at(window),
            hold_next: loan.held.at(window + 1),
            want_now,
            want_next,
        }
    }

    /// Takes over what `peer` says that it holds, and gives it more, as far as this region can spare it.
    ///
    /// # Errors
    /// A later ask was answered already, or the asker's window is not this one, the one before or the next.
    pub fn lend(
        &mut self,
        peer: usize,
        ask: &WindowAsk,
        facts: &WindowFacts,
    ) -> Result<WindowAnswer, RefusedAsk> {
        let loan = &self.peers[peer];
        let last = loan.lent.number;
        if ask.number <= last {
            let repeated = loan.answer.filter(|answer| answer.number == ask.number);
            return repeated.ok_or(RefusedAsk::Old { last });
        }
        if ask.first.abs_diff(facts.window) > 1 {
            return Err(RefusedAsk::Apart);
        }
        let mut taken = self.take_over(peer, ask, facts);
        let spare = self.spare_later(ask, facts);
        let next = match taken.is_renewed {
            true => self.give_next(ask, facts, spare),
            false => 0,
        };
        taken.held.now += self.give_now(ask, facts, taken.is_renewed);
        taken.held.next += next;
        self.put(peer, ask.number, &taken);
        let answer = WindowAnswer {
            number: ask.number,
            held: taken.held,
            spare: spare - next,
        };
        self.peers[peer].answer = Some(answer);
        Ok(answer)
    }

    /// Sets what is lent to what is held, and renews it for as many windows as can be.
    fn take_over(&mut self, peer: usize, ask: &WindowAsk, facts: &WindowFacts) -> Taken {
        let lent = &self.peers[peer].lent;
        let end = lent.end().unwrap_or(ask.first);
        // Earlier windows stay as they are: the other may have used them.
        let past = lent
            .pieces
            .iter()
            .filter(|it| it.first < ask.first && it.last >= facts.window);
        let past = past.map(|piece| LentPiece {
            last: piece.last.min(ask.first - 1),
            ..*piece
        });
        let mut taken = Taken {
            past: past.collect(),
            held: lent.claimed(ask, facts),
            // A window that is over or in use here cannot be lent by a mere renewal.
            is_renewed: ask.first >= facts.window || end >= facts.window || ask.hold_next == 0,
        };
        let unrenewed = end.max(ask.first);
        if !taken.is_renewed {
            taken.held.last = unrenewed;
        }
        self.put(peer, ask.number, &taken);
        // Others may have the windows that a renewal adds.
        if taken.held.last > end && self.most_lent_from(end + 1) > self.owned(end + 1) {
            (taken.is_renewed, taken.held.last) = (false, unrenewed);
            self.put(peer, ask.number, &taken);
        }
        taken
    }

    fn put(&mut self, peer: usize, number: u64, taken: &Taken) {
        let held = &taken.held;
        let lent = &mut self.peers[peer].lent;
        lent.number = number;
        lent.pieces.clone_from(&taken.past);
        lent.pieces.push(LentPiece {
            first: held.first,
            last: held.first,
            amount: held.now,
        });
        lent.pieces.push(LentPiece {
            first: held.first + 1,
            last: held.last,
            amount: held.next,
        });
    }

    /// The hits that can be lent in a window in which this region needs `need` and others have borrowed `lent`: none of
    /// those that it borrowed itself.
    fn lendable(&self, window: u64, need: u64, lent: u64, floor: u64) -> u64 {
        let unused = self.share(window).saturating_sub(need.max(floor));
        let own = self.owned(window).saturating_sub(floor);
        unused.min(own.saturating_sub(lent))
    }

    fn spare_later(&self, ask: &WindowAsk, facts: &WindowFacts) -> u64 {
        let window = ask.first.max(facts.window) + 1;
        let lent = self.most_lent_from(window);
        self.lendable(window, facts.need_next, lent, facts.floor)
    }

    /// The hits to give in this region's own window, which it is using.
    fn room_now(&self, facts: &WindowFacts) -> u64 {
        let lent = self.lent(facts.window);
        let spare = self.lendable(facts.window, facts.need_now, lent, facts.floor);
        let room = self.share(facts.window).saturating_sub(facts.count);
        part_of_spare(spare).min(room)
    }

    fn give_now(&self, ask: &WindowAsk, facts: &WindowFacts, is_renewed: bool) -> u64 {
        let can = match ask.first.cmp(&facts.window) {
            Ordering::Equal => self.room_now(facts),
            Ordering::Greater if is_renewed => {
                let lent = self.lent(ask.first);
                part_of_spare(self.lendable(ask.first, facts.need_next, lent, facts.floor))
            }
            // That window is over here.
            Ordering::Less | Ordering::Greater => 0,
        };
        ask.want_now.min(can)
    }

    fn give_next(&self, ask: &WindowAsk, facts: &WindowFacts, spare: u64) -> u64 {
        let can = part_of_spare(spare);
        let can = match ask.first < facts.window {
            // The asker's next window is in use here.
            true => can.min(self.room_now(facts)),
            false => can,
        };
        ask.want_next.min(can)
    }

    /// Holds what `answer` says, if it answers the latest ask of `peer`. A node calls it once for each answer.
    pub fn accept(&mut self, peer: usize, answer: &WindowAnswer) -> bool {
        let loan = &mut self.peers[peer];
        let is_latest = answer.number == loan.asked;
        if is_latest {
            loan.held = answer.held;
        }
        is_latest
    }

    /// Holds up to `hits` less of `peer`, in this window only as far as they are not used. The ask that follows gives them
    /// back.
    pub fn release(&mut self, peer: usize, hits: u64, (window, count): (u64, u64)) {
        let room = self.share(window).saturating_sub(count);
        let held = &mut self.peers[peer].held;
        let (now, next) = (held.at(window), held.at(window + 1));
        *held = WindowHeld {
            first: window,
            now: now - hits.min(now).min(room),
            next: next - hits.min(next),
            last: held.last,
        };
    }
}

impl WindowLent {
    /// The hits that the asker holds, and a new loan's last window. Whoever claims to hold more than was lent does not get
    /// it that way.
    fn claimed(&self, ask: &WindowAsk, facts: &WindowFacts) -> WindowHeld {
        WindowHeld {
            first: ask.first,
            now: ask.hold_now.min(self.at(ask.first)),
            next: ask.hold_next.min(self.at(facts.window.max(ask.first + 1))),
            last: ask.first + facts.windows,
        }
    }
}

/// The parts of an ask that a lender has taken over.
struct Taken {
    /// The hits that stay lent in earlier windows.
    past: Vec<LentPiece>,
    held: WindowHeld,
    /// True if the loan lasts for the windows of a new one, so that more can be given in them.
    is_renewed: bool,
}
