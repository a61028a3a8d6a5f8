//! `post_paid`: a budget for costs that are known only afterwards, such as tokens, bytes or money.
//!
//! Hits are always charged in full, and the answer to them is that of a look made just before: a
//! request is let in while anything is left, and pays when its cost is known.
//!
//! ```text
//!  left  100 |*
//!         40 |  *                    a look passes while anything is left
//!          0 |----*------------*--
//!        -60 |     *     *           the charge of a request that was let in at 40
//!            |        *              windows: until enough has left; buckets: until refilled
//! ```
//!
//! A **window** counts on as it always does. It keeps the newest hits up to its limit, or to the
//! end of a fixed window, so no debt outlives a window. A **bucket** goes below zero, at most by its
//! `max_debt`, and the refill pays; hits beyond are cut.
//!
//! **Reserving.** Hits that are reserved may come back, but what they pushed out of such a window would not: who reserved
//! more than the limit again and again would never be denied. So a [reserving](Limit::reserving) window takes no more than is
//! left, and cuts the rest. What was used beyond that is charged when it is known.
//!
//! **Bound.** In any window at most [`Limit::most_in_any_window`] hits are charged, plus the cost of
//! the requests that were let in and had not paid when nothing was left. With costs known in
//! advance there are no such requests, but the one that took the last hit.
//!
//! The state is that of the same limit paid in advance, so either can follow the other, and usage is
//! kept.

use crate::equal_count::EqualCount;
use crate::limit::Kind;
use crate::rate::Rate;
use crate::spec::{Algorithm, LimitError};
use crate::sub_windows::SubWindows;
use crate::{Ask, Limit, MAX_COUNT, Micros, Moment, Outcome, State, StateMut, StateRef, Verdict};

/// The bursts by which a bucket may go below zero unless its limit says otherwise.
pub const DEBT_BURSTS: u64 = 10;

/// The precomputed values of a post-paid limit.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) enum PostPaid {
    FixedWindow,
    EqualCount(EqualCount),
    /// Of a synced counter only: sub-windows can be added up over nodes.
    SubWindows(SubWindows),
    SlidingLog,
    /// Takes no more than is left.
    ReservingCount(EqualCount),
    /// Takes no more than is left.
    ReservingLog,
    /// With the most hits that can be missing: the burst and the largest debt.
    Bucket(Rate, u64),
}

impl PostPaid {
    /// The post-paid form of `kind`.
    pub(crate) fn try_new(
        algorithm: Algorithm,
        kind: Kind,
        max_debt: Option<u64>,
    ) -> Result<Self, LimitError> {
        let made = match kind {
            Kind::FixedWindow => Self::FixedWindow,
            Kind::EqualCount(cut) => Self::EqualCount(cut),
            Kind::SlidingLog => Self::SlidingLog,
            Kind::TokenBucket(rate) | Kind::Gcra(rate) => {
                let debt = max_debt.unwrap_or(rate.burst().saturating_mul(DEBT_BURSTS));
                let most = rate.burst().saturating_add(debt);
                return match most <= rate.most() {
                    true => Ok(Self::Bucket(rate, most)),
                    false => Err(LimitError::DebtTooLarge(rate.most() - rate.burst())),
                };
            }
            Kind::SubWindows(sub) => Self::SubWindows(sub),
            Kind::LeakyBucket(..) | Kind::Concurrency | Kind::PostPaid(_) => {
                return Err(LimitError::NoPostPaid(algorithm));
            }
        };
        match max_debt {
            Some(_) => Err(LimitError::NoDebt(algorithm)),
            None => Ok(made),
        }
    }

    /// The same, paid in advance.
    const fn prepaid(self, algorithm: Algorithm) -> Kind {
        match self {
            Self::FixedWindow => Kind::FixedWindow,
            Self::EqualCount(cut) | Self::ReservingCount(cut) => Kind::EqualCount(cut),
            Self::SubWindows(sub) => Kind::SubWindows(sub),
            Self::SlidingLog | Self::ReservingLog => Kind::SlidingLog,
            Self::Bucket(rate, _) => match algorithm {
                Algorithm::Gcra => Kind::Gcra(rate),
                Algorithm::TokenBucket
                | Algorithm::FixedWindow
                | Algorithm::SlidingWindow
                | Algorithm::SlidingLog
                | Algorithm::LeakyBucket
                | Algorithm::Concurrency => Kind::TokenBucket(rate),
            },
        }
    }
}

impl Limit {
    /// Returns true if hits are charged in full, whatever is left.
    #[must_use]
    pub const fn is_post_paid(&self) -> bool {
        matches!(self.kind, Kind::PostPaid(_))
    }

    /// The same limit for hits that are reserved, and may be given back: a post-paid one that [forgets](Self::forgets_excess) what
    /// exceeds it takes no more of them than are left, and tells the rest as [cut](Outcome::cut). All others stay as they are.
    #[must_use]
    pub const fn reserving(&self) -> Self {
        let Kind::PostPaid(kind) = self.kind else {
            return *self;
        };
        let kind = match kind {
            PostPaid::EqualCount(cut) => PostPaid::ReservingCount(cut),
            PostPaid::SlidingLog => PostPaid::ReservingLog,
            PostPaid::FixedWindow
            | PostPaid::SubWindows(_)
            | PostPaid::ReservingCount(_)
            | PostPaid::ReservingLog
            | PostPaid::Bucket(..) => return *self,
        };
        self.with_kind(Kind::PostPaid(kind))
    }

    /// Returns true if it takes no more hits than are left.
    #[must_use]
    pub const fn is_reserving(&self) -> bool {
        matches!(
            self.kind,
            Kind::PostPaid(PostPaid::ReservingCount(_) | PostPaid::ReservingLog)
        )
    }

    /// The most hits that a post-paid bucket goes below zero; none for every other limit.
    #[must_use]
    pub const fn max_debt(&self) -> Option<u64> {
        if let Kind::PostPaid(PostPaid::Bucket(rate, most)) = self.kind {
            return Some(most - rate.burst());
        }
        None
    }

    /// The hits by which a post-paid bucket is below zero that answered with so many `remaining` hits
    /// and was unused `full_after` some time. Zero for windows, which forget what is older than their
    /// newest hits. Exact up to a thousand hits a second, and to 0.1 % above.
    #[inline]
    #[must_use]
    pub fn debt(&self, remaining: u64, full_after: Micros) -> u64 {
        if let Kind::PostPaid(PostPaid::Bucket(rate, _)) = self.kind
            && remaining == 0
        {
            return rate
                .hits_begun(rate.units(full_after))
                .saturating_sub(rate.burst());
        }
        0
    }

    /// A window's limit with hits paid afterwards, on the same counters: also one with sub-windows, as nodes that
    /// [sync](crate::synced::SyncTerms) a budget have it. What cannot be paid afterwards stays as it is.
    #[must_use]
    pub fn paid_afterwards(&self) -> Self {
        let made = PostPaid::try_new(self.algorithm(), self.kind, None);
        made.map_or(*self, |kind| self.with_kind(Kind::PostPaid(kind)))
    }

    /// The same limit with hits paid in advance, on the same counters.
    #[must_use]
    pub(crate) const fn prepaid(&self) -> Self {
        if let Kind::PostPaid(kind) = self.kind {
            return self.with_kind(kind.prepaid(self.algorithm()));
        }
        *self
    }
}

/// The answer of the post-paid `limit`.
pub(crate) fn test(limit: &Limit, state: StateRef<'_>, ask: Ask, at: &Moment) -> Outcome {
    let prepaid = limit.prepaid();
    if ask.taken == 0 {
        let outcome = prepaid.test(state, ask, at);
        if ask.hits == 0 {
            return look(outcome);
        }
        // So does every refund.
        if outcome.fits() {
            return outcome;
        }
    }
    overdrawing(limit, state, ask, at)
}

/// The answer to hits that leave less than nothing, or follow others of the same request: found by
/// charging a copy.
#[cold]
fn overdrawing(limit: &Limit, state: StateRef<'_>, ask: Ask, at: &Moment) -> Outcome {
    let prepaid = limit.prepaid();
    let mut state = match state {
        StateRef::Words(words) => State::Words(*words),
        StateRef::Heap(heap) => State::Heap(heap.to_vec()),
    };
    let glance = |state: &State| look(prepaid.test(state.as_ref(), Ask::hits(0), at));
    limit.charge_owned(&mut state, i64::try_from(ask.taken).unwrap_or(i64::MAX), at);
    let before = glance(&state);
    let fits = match ask.hits {
        0 => return before,
        ..0 => true,
        1.. => before.fits(),
    };
    let cut = match limit.is_reserving() {
        true => (ask.hits.max(0).unsigned_abs()).saturating_sub(before.remaining),
        false => cut(limit, &state, ask.hits, at),
    };
    limit.charge_owned(&mut state, ask.hits, at);
    let after = Outcome {
        cut,
        ..glance(&state)
    };
    if fits {
        return Outcome {
            verdict: Verdict::Fits,
            retry_after: Micros::ZERO,
            ..after
        };
    }
    after
}

/// The part of `hits` beyond the largest debt of a bucket, which [`charge`] leaves out.
fn cut(limit: &Limit, state: &State, hits: i64, at: &Moment) -> u64 {
    let (Kind::PostPaid(PostPaid::Bucket(rate, most)), State::Words(words)) = (&limit.kind, state)
    else {
        return 0;
    };
    crate::token_bucket::cut(*rate, *most, words, hits, at.now)
}

/// The answer to a look, of which the limit paid in advance says `outcome`.
fn look(outcome: Outcome) -> Outcome {
    if outcome.remaining > 0 {
        return outcome;
    }
    let (verdict, wait) = match (outcome.verdict, outcome.retry_after) {
        (Verdict::Never, _) | (_, Micros::MAX) => (Verdict::Never, Micros::ZERO),
        (Verdict::Fits | Verdict::Later, wait) => (Verdict::Later, wait),
    };
    Outcome {
        verdict,
        retry_after: wait,
        ..outcome
    }
}

/// Charges a counter of words or on the heap of a post-paid limit: in full, but for the debt of a
/// bucket, and what a reserving window has no room for.
pub(crate) fn charge(
    limit: &Limit,
    kind: &PostPaid,
    state: StateMut<'_>,
    hits: i64,
    at: &Moment,
) -> Result<(), crate::Spill> {
    match (kind, state) {
        (PostPaid::Bucket(rate, most), StateMut::Words(words)) => {
            crate::token_bucket::charge(*rate, *most, words, hits, at.now);
            Ok(())
        }
        (PostPaid::ReservingCount(_) | PostPaid::ReservingLog, state) => {
            let prepaid = limit.prepaid();
            let shared = match &state {
                StateMut::Words(words) => StateRef::Words(words),
                StateMut::Heap(heap) => StateRef::Heap(heap),
            };
            let left = prepaid.test(shared, Ask::hits(0), at).remaining;
            prepaid.charge(state, hits.min(left.cast_signed()), at)
        }
        (_, state) => limit
            .prepaid()
            .charge(state, hits.min(MAX_COUNT.cast_signed()), at),
    }
}

#[cfg(test)]
mod tests;
