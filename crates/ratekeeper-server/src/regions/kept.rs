//! The loans of a counter, as its region's store keeps them: for windows, or for a time.

use ratekeeper_core::region::loans::{
    LoanKind, LoanNeeds, LoanRegions, LoanStanding, LoanTerms, RefusedAsk, TimedAnswer, TimedAsk,
    TimedFacts, TimedLoans, TimedUse, WindowAnswer, WindowAsk, WindowFacts, WindowLoans,
};
use ratekeeper_core::{Limit, Micros, RegionId};
use ratekeeper_store::{LoanCounter, LoanState, boot_time};

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
    /// The regions, in the order of their loans.
    pub(super) regions: &'a LoanRegions,
}

impl LoanReply {
    /// True if the asker holds nothing by it.
    pub(super) const fn is_nothing(&self) -> bool {
        match self {
            Self::Windows(answer) => answer.held.now == 0 && answer.held.next == 0,
            Self::Timed(answer) => answer.amount == 0,
        }
    }
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
    /// The loans that were found; [`None`] if they cannot be read. What is over is dropped.
    pub(super) fn read(&self, state: &LoanState) -> Option<KeptLoans> {
        let owns = self.counter.owns.quota();
        let (is_new, regions) = (state.loans.is_empty(), self.regions);
        Some(match self.kind {
            LoanKind::Windows if is_new => {
                KeptLoans::Windows(WindowLoans::new(owns, regions.count()))
            }
            LoanKind::Windows => {
                KeptLoans::Windows(WindowLoans::decode(&state.loans, owns, regions)?)
            }
            LoanKind::Log | LoanKind::Bucket => {
                let mut loans = match is_new {
                    true => TimedLoans::new(owns, regions.count()),
                    false => TimedLoans::decode(&state.loans, owns, regions)?,
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
    pub(super) fn encode(&self, state: &LoanState, regions: &LoanRegions) -> Option<Vec<u8>> {
        match self {
            Self::Windows(loans) => loans.encode(state.window, regions),
            Self::Timed(loans) => loans.encode(state.generation, regions),
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
        needs: LoanNeeds,
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

    /// Takes back what was lent to `region` for a time, if its latest ask is still that one.
    pub(super) fn regain(
        &mut self,
        lending: &Lending<'_>,
        (region, number): (RegionId, u64),
    ) -> bool {
        match self {
            Self::Windows(_) => false,
            Self::Timed(loans) => {
                let place = lending
                    .regions
                    .with(&loans.left)
                    .position(|id| id == region);
                place.is_some_and(|place| loans.regain(place, number))
            }
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

    /// The regions to which hits are lent for a time, with the numbers of their latest asks.
    pub(super) fn lent_for_a_time(&self, lending: &Lending<'_>) -> Vec<(RegionId, u64)> {
        match self {
            Self::Windows(_) => Vec::new(),
            Self::Timed(loans) => {
                let peers = loans.peers.iter().zip(lending.regions.with(&loans.left));
                let lent = peers.filter(|(loan, _)| loan.lent.amount > 0);
                lent.map(|(loan, region)| (region, loan.lent.number))
                    .collect()
            }
        }
    }

    pub(super) fn standing(&self, state: &LoanState, lending: &Lending<'_>) -> LoanStanding {
        match self {
            Self::Windows(loans) => loans.standing(state.window, state.left, &lending.terms),
            Self::Timed(loans) => loans.standing(state.at, &lending.terms),
        }
    }
}
