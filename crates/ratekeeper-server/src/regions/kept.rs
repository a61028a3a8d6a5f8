//! The loans of a counter, as its region's store keeps them: for windows, or for a time.

use ratekeeper_core::region::loans::{
    LoanKind, LoanTerms, RefusedAsk, TimedAnswer, TimedAsk, TimedFacts, TimedLoans, TimedUse,
    WindowAnswer, WindowAsk, WindowFacts, WindowLoans,
};
use ratekeeper_core::{Limit, Micros};
use ratekeeper_store::{LoanCounter, LoanState, boot_time};

use super::demand::Needs;

/// The part of its own share that a region never lends: a tenth.
const FLOOR: u64 = 10;

/// The loans of one counter.
#[derive(Clone, Debug)]
pub(super) enum KeptLoans {
    Windows(WindowLoans),
    Timed(TimedLoans),
}

/// An ask of another region.
#[derive(Clone, Copy, Debug)]
pub(super) enum SentAsk {
    Windows(WindowAsk),
    Timed(TimedAsk),
}

/// An answer to an ask.
#[derive(Clone, Copy, Debug)]
pub(super) enum LoanReply {
    Windows(WindowAnswer),
    Timed(TimedAnswer),
}

/// The counter that loans belong to, and the terms on which they are made.
#[derive(Clone, Copy, Debug)]
pub(super) struct Lending<'a> {
    pub(super) counter: &'a LoanCounter,
    pub(super) kind: LoanKind,
    pub(super) terms: LoanTerms,
    /// The names of the regions as a number, and how many there are.
    pub(super) names: (u64, usize),
}

/// The shares of a counter, and its loans with each region.
#[derive(Clone, Debug)]
pub(super) struct Standing {
    pub(super) owns: u64,
    /// The share now, and in the next window.
    pub(super) now: u64,
    pub(super) next: u64,
    pub(super) peers: Vec<PeerStanding>,
}

/// The loans with one region.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct PeerStanding {
    /// The hits lent to it, and held of it, now.
    pub(super) lent: u64,
    pub(super) held: u64,
    /// The time until what is held of it ends.
    pub(super) left: Micros,
    /// True if it still has hits in the next window.
    pub(super) is_lent: bool,
    /// True if what is held of it is to be renewed.
    pub(super) renews: bool,
    /// The number of its latest ask, if hits are lent to it for a time.
    pub(super) timed: Option<u64>,
}

impl SentAsk {
    /// Its number.
    pub(super) const fn number(&self) -> u64 {
        match self {
            Self::Windows(ask) => ask.number,
            Self::Timed(ask) => ask.number,
        }
    }
}

impl Lending<'_> {
    /// The loans that were found; [`None`] if they are of other regions. What is over is dropped.
    pub(super) fn read(&self, state: &LoanState) -> Option<KeptLoans> {
        let owns = self.counter.owns.quota();
        let (is_new, names) = (state.loans.is_empty(), self.names);
        Some(match self.kind {
            LoanKind::Windows if is_new => KeptLoans::Windows(WindowLoans::new(owns, names.1)),
            LoanKind::Windows => {
                KeptLoans::Windows(WindowLoans::decode(&state.loans, owns, names)?)
            }
            LoanKind::Log | LoanKind::Bucket => {
                let mut loans = match is_new {
                    true => TimedLoans::new(owns, names.1),
                    false => TimedLoans::decode(&state.loans, owns, names)?,
                };
                while let Some((peer, end)) = loans.over(state.at, state.generation) {
                    loans.drop_held(peer, end);
                }
                KeptLoans::Timed(loans)
            }
        })
    }

    /// The hits that a bucket holds when it is full, under `share`.
    pub(super) fn capacity(&self, share: u64) -> u64 {
        self.limit(share).capacity()
    }

    fn limit(&self, share: u64) -> Limit {
        self.counter.owns.holding(share, self.counter.whole)
    }

    /// The hits of a counter that are used: of a bucket, none.
    const fn count(&self, state: &LoanState) -> Option<u64> {
        match self.kind {
            LoanKind::Windows | LoanKind::Log => Some(state.count),
            LoanKind::Bucket => None,
        }
    }
}

impl KeptLoans {
    pub(super) fn encode(&self, state: &LoanState, names: u64) -> Option<Vec<u8>> {
        match self {
            Self::Windows(loans) => loans.encode(state.window, names),
            Self::Timed(loans) => loans.encode(state.generation, names),
        }
    }

    /// The share that the region enforces.
    pub(super) fn share(&self, state: &LoanState) -> u64 {
        match self {
            Self::Windows(loans) => loans.share(state.window),
            Self::Timed(loans) => loans.share(),
        }
    }

    /// The next ask of `peer`, for so many hits now and later.
    pub(super) fn ask(
        &mut self,
        (lending, state): (&Lending<'_>, &LoanState),
        peer: usize,
        wants: (u64, u64),
    ) -> SentAsk {
        match self {
            Self::Windows(loans) => SentAsk::Windows(loans.ask(peer, state.window, wants)),
            Self::Timed(loans) => {
                let window = (lending.kind == LoanKind::Log).then_some(lending.terms.window);
                SentAsk::Timed(loans.ask(peer, wants.1, window, state.at))
            }
        }
    }

    /// Holds up to `hits` less of `peer`.
    pub(super) fn release(
        &mut self,
        (lending, state): (&Lending<'_>, &LoanState),
        peer: usize,
        hits: u64,
    ) {
        match self {
            Self::Windows(loans) => loans.release(peer, hits, (state.window, state.count)),
            Self::Timed(loans) => loans.release(peer, hits, lending.count(state)),
        }
    }

    /// Lends as `ask` says; returns the tokens that leave a bucket, too; below zero, those that come back to it.
    pub(super) fn lend(
        &mut self,
        (lending, state): (&Lending<'_>, &LoanState),
        (peer, ask): (usize, &SentAsk),
        needs: Needs,
    ) -> Result<(LoanReply, i64), RefusedAsk> {
        let floor = lending.counter.owns.quota().div_ceil(FLOOR);
        match (self, ask) {
            (Self::Windows(loans), SentAsk::Windows(ask)) => {
                let facts = WindowFacts {
                    window: state.window,
                    count: state.count,
                    need_now: needs.now,
                    need_next: needs.next,
                    floor,
                    windows: lending.terms.windows(),
                };
                let answer = loans.lend(peer, ask, &facts)?;
                Ok((LoanReply::Windows(answer), 0))
            }
            (Self::Timed(loans), SentAsk::Timed(ask)) => {
                let level = lending.capacity(loans.share()).saturating_sub(state.count);
                let facts = TimedFacts {
                    used: match lending.count(state) {
                        Some(count) => TimedUse::Log(count),
                        None => TimedUse::Bucket(level, lending.counter.whole),
                    },
                    need: needs.next,
                    floor,
                };
                let reply = loans.lend(peer, ask, &facts)?;
                Ok((LoanReply::Timed(reply.answer), reply.leaving))
            }
            // Regions that agree on terms mean the same algorithm.
            (Self::Windows(_), SentAsk::Timed(_)) | (Self::Timed(_), SentAsk::Windows(_)) => {
                Err(RefusedAsk::Apart)
            }
        }
    }

    /// Holds what `answer` says, to an ask that was sent at `sent` by the boot clock; returns the tokens that come to a
    /// bucket. [`None`] if it counts no more.
    pub(super) fn accept(
        &mut self,
        (lending, state): (&Lending<'_>, &LoanState),
        (peer, answer): (usize, &LoanReply),
        sent: Micros,
    ) -> Option<u64> {
        match (self, answer) {
            (Self::Windows(loans), LoanReply::Windows(answer)) => {
                loans.accept(peer, answer).then_some(0)
            }
            (Self::Timed(loans), LoanReply::Timed(answer)) => {
                // After the store has told its time: what has passed since the ask is not too little.
                let elapsed = Micros::new(boot_time().get().saturating_sub(sent.get()));
                let (now, generation) = (state.at, state.generation);
                let times = (elapsed, &lending.terms);
                let is_taken =
                    generation > 0 && loans.accept(peer, answer, times, (now, generation));
                is_taken.then_some(answer.tokens)
            }
            (Self::Windows(_), LoanReply::Timed(_)) | (Self::Timed(_), LoanReply::Windows(_)) => {
                None
            }
        }
    }

    /// Knows of a later ask of `peer` than it remembers.
    pub(super) fn asked_before(&mut self, peer: usize, latest: u64) {
        match self {
            Self::Windows(loans) => {
                let asked = &mut loans.peers[peer].asked;
                *asked = latest.max(*asked);
            }
            Self::Timed(loans) => loans.asked_before(peer, latest),
        }
    }

    /// Takes back what was lent to `peer` for a time, if its latest ask is still that one.
    pub(super) fn regain(&mut self, peer: usize, number: u64) -> bool {
        match self {
            Self::Windows(_) => false,
            Self::Timed(loans) => loans.regain(peer, number),
        }
    }

    /// The hits held of `peer`, now and later.
    pub(super) fn held(&self, peer: usize, state: &LoanState) -> (u64, u64) {
        match self {
            Self::Windows(loans) => {
                let held = &loans.peers[peer].held;
                (held.at(state.window), held.at(state.window + 1))
            }
            Self::Timed(loans) => {
                let amount = loans.peers[peer].held.amount;
                (amount, amount)
            }
        }
    }

    pub(super) fn standing(&self, state: &LoanState, terms: &LoanTerms) -> Standing {
        match self {
            Self::Windows(loans) => windows_standing(loans, state, terms),
            Self::Timed(loans) => timed_standing(loans, state, terms),
        }
    }
}

fn windows_standing(loans: &WindowLoans, state: &LoanState, terms: &LoanTerms) -> Standing {
    let window = state.window;
    let peers = loans.peers.iter().map(|loan| {
        let holds = loan.held.next > 0 && loan.held.last > window;
        let left = loan.held.last.saturating_sub(window);
        let later = if holds { left } else { 0 };
        let later = terms.window.get().saturating_mul(later);
        PeerStanding {
            lent: loan.lent.at(window),
            held: loan.held.at(window),
            left: Micros::new(state.left.get().saturating_add(later)),
            is_lent: loan.lent.at(window + 1) > 0,
            renews: holds && left <= terms.windows() / 2,
            timed: None,
        }
    });
    Standing {
        owns: loans.owns,
        now: loans.share(window),
        next: loans.share(window + 1),
        peers: peers.collect(),
    }
}

fn timed_standing(loans: &TimedLoans, state: &LoanState, terms: &LoanTerms) -> Standing {
    let peers = loans.peers.iter().map(|loan| {
        let (held, lent) = (loan.held, loan.lent);
        let left = held.until.since(state.at).get();
        PeerStanding {
            lent: lent.amount,
            held: held.amount,
            left: Micros::new(left),
            is_lent: lent.amount > 0,
            renews: held.amount > 0 && left < terms.time.get() / 2,
            timed: (lent.amount > 0).then_some(lent.number),
        }
    });
    let share = loans.share();
    Standing {
        owns: loans.owns,
        now: share,
        next: share,
        peers: peers.collect(),
    }
}
