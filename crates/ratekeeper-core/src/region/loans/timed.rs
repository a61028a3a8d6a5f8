//! Loans of logs and buckets: one amount, for a time.

use super::{LoanTerms, RefusedAsk, part_of_spare};
use crate::{Micros, RegionId, Timestamp, Whole};

/// The loans of one counter, as one region keeps them.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TimedLoans {
    /// The share that the region owns; while weights change, the smaller of the old and the new one.
    pub owns: u64,
    /// The loans with each region, in the order of their names; the region's own is not used. Then those with regions that
    /// have left.
    pub peers: Vec<TimedLoan>,
    /// The regions that have left, in the order of their loans.
    pub left: Vec<RegionId>,
}

/// The loans between a region and one other.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct TimedLoan {
    /// The number of the latest ask that was made of the other.
    pub asked: u64,
    /// The number of the answer that was taken last; 0 if none ever was, and [`None`] if that is not known.
    pub taken: Option<u64>,
    /// The hits that are held of the other's share.
    pub held: TimedHeld,
    /// The hits that the other may hold of this region's share.
    pub lent: TimedLent,
    /// The latest answer to the other, to be repeated when its ask is. Its tokens are under way until a later ask tells
    /// whether it was taken, or the loan is over.
    pub answer: Option<TimedAnswer>,
}

/// Hits that are held.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct TimedHeld {
    /// The hits.
    pub amount: u64,
    /// The end, by the clock of the region's store.
    pub until: Timestamp,
    /// The hits that were held until then, once it is over: in a log they count for a window more.
    pub tail: u64,
    /// The generation of the region in which the end was set: in another one, that moment is unknown.
    pub generation: u64,
}

/// Hits that are lent.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct TimedLent {
    /// The number of the latest ask of the other that was answered.
    pub number: u64,
    /// The hits.
    pub amount: u64,
}

/// An ask. It says what the asker holds, so it also renews a loan and gives hits back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TimedAsk {
    /// The number of the ask, which grows.
    pub number: u64,
    /// The hits that it holds, or held and still counts.
    pub hold: u64,
    /// The hits that it lacks.
    pub want: u64,
    /// The number of the answer that it took last; 0 if it took none, and [`None`] if that is not known. It takes no
    /// answer any more to an ask before this one.
    pub taken: Option<u64>,
}

/// An answer: what the asker holds from now on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TimedAnswer {
    /// The number of the ask.
    pub number: u64,
    /// The hits that the asker holds.
    pub amount: u64,
    /// The hits of the lender's bucket that go along with it.
    pub tokens: u64,
    /// The hits that the lender could still spare.
    pub spare: u64,
}

/// The effects of an ask on its lender.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TimedReply {
    /// The answer.
    pub answer: TimedAnswer,
    /// The hits that leave the lender's bucket with it; below zero, those that come back of an answer which was never taken.
    pub leaving: i64,
}

/// The state of a lender's own counter, rolled or settled, and its needs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TimedFacts {
    /// The state of the counter.
    pub used: TimedUse,
    /// The hits that it expects to need.
    pub need: u64,
    /// The hits of its own share that it never lends.
    pub floor: u64,
}

/// The state of a counter whose share is lent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TimedUse {
    /// The hits that a log counts, and those that nodes hold in leases.
    Log(u64),
    /// The hits that are there in a bucket, without those that nodes hold in leases, and the whole limit.
    Bucket(u64, Whole),
}

impl TimedHeld {
    /// Returns true if it is over, by the clock of the store or because the region began a new generation.
    #[must_use]
    pub fn is_over(&self, now: Timestamp, generation: u64) -> bool {
        self.amount > 0 && (self.until <= now || self.generation != generation)
    }
}

impl TimedLoans {
    /// No loans with any of `regions` regions.
    #[must_use]
    pub fn new(owns: u64, regions: usize) -> Self {
        Self {
            owns,
            peers: vec![TimedLoan::NONE; regions],
            left: Vec::new(),
        }
    }

    /// The share that the region enforces, once loans that are [over](Self::over) were dropped.
    #[must_use]
    pub fn share(&self) -> u64 {
        let held: u64 = self.peers.iter().map(|peer| peer.held.amount).sum();
        self.owns.saturating_sub(self.lent()).saturating_add(held)
    }

    /// The hits lent to all others.
    #[must_use]
    pub fn lent(&self) -> u64 {
        self.peers.iter().map(|peer| peer.lent.amount).sum()
    }

    /// Returns true if no more is lent than owned, after the share became smaller. Other regions may own more once it is,
    /// and for a log once its window has passed, too.
    #[must_use]
    pub fn is_settled(&self) -> bool {
        self.lent() <= self.owns
    }

    /// The loan that was over first, and when that was: it has to be [dropped](Self::drop_held) before anything else is
    /// done. A bucket is settled as of that moment before, and cut to its capacity after.
    #[must_use]
    pub fn over(&self, now: Timestamp, generation: u64) -> Option<(usize, Timestamp)> {
        let peers = self.peers.iter().enumerate();
        let over = peers.filter(|(_, peer)| peer.held.is_over(now, generation));
        let ended = over.map(|(at, peer)| (at, peer.held.until.min(now)));
        ended.min_by_key(|(_, end)| *end)
    }

    /// Holds nothing of `peer` any more, as of `end`.
    pub fn drop_held(&mut self, peer: usize, end: Timestamp) {
        let held = &mut self.peers[peer].held;
        held.tail = held.amount;
        held.amount = 0;
        held.until = end.min(held.until);
    }

    /// The next ask of `peer`, by a region that lacks `want` hits. `window` is that of a log, in which hits of a loan that
    /// is over still count.
    pub fn ask(
        &mut self,
        peer: usize,
        want: u64,
        window: Option<Micros>,
        now: Timestamp,
    ) -> TimedAsk {
        let loan = &mut self.peers[peer];
        loan.asked += 1;
        let tail = match window {
            Some(window) if now < loan.held.until.after(window) => loan.held.tail,
            _ => 0,
        };
        TimedAsk {
            number: loan.asked,
            hold: loan.held.amount.max(tail),
            want,
            taken: loan.taken,
        }
    }

    /// Takes over what `peer` says that it holds, and gives it more, as far as this region can spare it. A bucket then loses
    /// the tokens of the answer, and is cut to its capacity. Those of the answer before come back first, if that was never
    /// taken.
    ///
    /// # Errors
    /// A later ask was answered already, or this region owns less than it has lent, and waits for loans to end.
    pub fn lend(
        &mut self,
        peer: usize,
        ask: &TimedAsk,
        facts: &TimedFacts,
    ) -> Result<TimedReply, RefusedAsk> {
        let loan = &self.peers[peer];
        let last = loan.lent.number;
        if ask.number <= last {
            let repeated = loan.answer.filter(|answer| answer.number == ask.number);
            let reply = repeated.map(|answer| TimedReply { answer, leaving: 0 });
            return reply.ok_or(RefusedAsk::Old { last });
        }
        // An ask that comes late may tell of what was taken back since.
        let amount = ask.hold.min(loan.lent.amount);
        let freed = loan.lent.amount - amount;
        if self.lent() - freed > self.owns {
            return Err(RefusedAsk::Shrunk);
        }
        let refused = loan.refused_tokens(ask);
        let loan = &mut self.peers[peer];
        loan.lent = TimedLent {
            number: ask.number,
            amount,
        };
        let share = self.share();
        let unused = share.saturating_sub(facts.need.max(facts.floor));
        let own = self
            .owns
            .saturating_sub(facts.floor)
            .saturating_sub(self.lent());
        let spare = unused.min(own);
        let can = ask.want.min(part_of_spare(spare));
        let (give, tokens, back) = match facts.used {
            TimedUse::Log(count) => (can.min(share.saturating_sub(count)), 0, 0),
            TimedUse::Bucket(level, whole) => {
                let back = refused.min(whole.burst_of(share).saturating_sub(level));
                (can, part(level + back, can, share), back)
            }
        };
        let loan = &mut self.peers[peer];
        loan.lent.amount += give;
        let answer = TimedAnswer {
            number: ask.number,
            amount: loan.lent.amount,
            tokens,
            spare: spare - give,
        };
        loan.answer = Some(answer);
        Ok(TimedReply {
            answer,
            leaving: tokens.cast_signed() - back.cast_signed(),
        })
    }

    /// Holds what `answer` says, if it answers the latest ask of `peer`, which was sent `elapsed` ago by the boot clock of
    /// the node that sent it. A bucket's level then rises by the tokens. It is taken once.
    pub fn accept(
        &mut self,
        peer: usize,
        answer: &TimedAnswer,
        (elapsed, terms): (Micros, &LoanTerms),
        (now, generation): (Timestamp, u64),
    ) -> bool {
        let loan = &mut self.peers[peer];
        let is_latest = answer.number == loan.asked && loan.taken != Some(answer.number);
        let (true, Some(usable)) = (is_latest, terms.usable(elapsed)) else {
            return false;
        };
        loan.taken = Some(answer.number);
        loan.held = TimedHeld {
            amount: answer.amount,
            until: now.after(usable),
            tail: 0,
            generation,
        };
        true
    }

    /// Holds up to `hits` less of `peer`: of a log that counts `count` hits, only as far as they are not used. The ask that
    /// follows gives them back.
    pub fn release(&mut self, peer: usize, hits: u64, count: Option<u64>) {
        let share = self.share();
        let room = count.map_or(u64::MAX, |count| share.saturating_sub(count));
        let held = &mut self.peers[peer].held;
        held.amount -= hits.min(held.amount).min(room);
    }

    /// Knows that `peer` was asked with that number, although it does not remember it: nor does it what it took.
    pub fn asked_before(&mut self, peer: usize, latest: u64) {
        let loan = &mut self.peers[peer];
        if latest > loan.asked {
            (loan.asked, loan.taken) = (latest, None);
        }
    }

    /// Takes back what was lent to `peer`, if its latest ask is still the one of that number: the lender has waited for the
    /// time of a loan and the margin, and for a log its window more. A bucket fills up then, so tokens that were under way
    /// come back no more.
    pub fn regain(&mut self, peer: usize, number: u64) -> bool {
        let loan = &mut self.peers[peer];
        let is_same = loan.lent.number == number;
        if is_same {
            (loan.lent.amount, loan.answer) = (0, None);
        }
        is_same
    }
}

impl TimedLoan {
    /// None: nothing was ever asked.
    pub(super) const NONE: Self = Self {
        asked: 0,
        taken: Some(0),
        held: TimedHeld {
            amount: 0,
            until: Timestamp::from_micros(0),
            tail: 0,
            generation: 0,
        },
        lent: TimedLent {
            number: 0,
            amount: 0,
        },
        answer: None,
    };

    /// The tokens of the latest answer, if `ask`, which is a later one, tells that it was never taken: now it cannot be any
    /// more.
    fn refused_tokens(&self, ask: &TimedAsk) -> u64 {
        let refused = self
            .answer
            .filter(|answer| ask.taken.is_some_and(|taken| taken < answer.number));
        refused.map_or(0, |answer| answer.tokens)
    }
}

/// `level * give / share`, rounded down; nothing of nothing.
fn part(level: u64, give: u64, share: u64) -> u64 {
    let product = u128::from(level) * u128::from(give);
    let part = product.checked_div(u128::from(share)).unwrap_or(0);
    u64::try_from(part).unwrap_or(level)
}
