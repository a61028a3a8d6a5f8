//! A request in flight to several partitions.

use std::future::Future;
use std::ops::Range;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use ratekeeper_core::Timestamp;
use smallvec::SmallVec;

use super::partition::Partition;
use super::partitions::Partitions;
use super::parts::Parts;
use super::verdict::{self, whole};
use crate::{Answer, Request, Step, StoreError, Verdicts};

/// A partition with the steps of the request there.
#[derive(Debug)]
pub(super) struct Leg<T> {
    pub(super) partition: Partition,
    /// The range of the ordered steps.
    pub(super) range: Range<usize>,
    /// The permit that it takes there.
    pub(super) permit: Option<u128>,
    /// True if it was asked, and not told that the request is denied anyway.
    pub(super) may_take: bool,
    pub(super) asked: Asked<T>,
}

/// The progress of asking a partition.
#[derive(Debug)]
#[allow(
    clippy::large_enum_variant,
    reason = "an answer given at once needs no allocation"
)]
pub(super) enum Asked<T> {
    Not,
    Waiting(T),
    Answered(Result<Verdicts, StoreError>),
}

impl<T> Leg<T> {
    /// The partition's answer; unavailable if it was not asked or has not answered.
    pub(super) fn answer(&self) -> Result<&Verdicts, StoreError> {
        match &self.asked {
            Asked::Answered(answer) => answer.as_ref().map_err(|error| *error),
            Asked::Not | Asked::Waiting(_) => Err(StoreError::Unavailable),
        }
    }
}

/// Hits that a partition was asked to give back.
#[derive(Debug)]
pub(super) struct Returning<T> {
    pub(super) partition: Partition,
    pub(super) hits: u64,
    pub(super) ticket: T,
}

/// Finishes at once if all partitions have answered; otherwise returns a ticket.
pub(super) fn begin<P: Partitions>(
    partitions: &P,
    request: &Request<'_>,
    parts: Parts,
    steps: &[Step],
    legs: SmallVec<[Leg<P::Ticket>; 4]>,
) -> Answer<Ticket<P>> {
    let mut answer = None;
    let mut returns = SmallVec::new();
    if legs
        .iter()
        .all(|leg| matches!(leg.asked, Asked::Answered(_)))
    {
        let concluded = conclude(partitions, &parts, steps, &legs, request.now);
        returns = concluded.1;
        match concluded.0 {
            Ok(verdicts) if returns.is_empty() && verdicts.fault().is_none() => {
                return Answer::Decided(verdicts);
            }
            concluded => answer = Some(concluded),
        }
    }
    Answer::Pending(Ticket(State::Several(Some(Box::new(Journey {
        partitions: partitions.clone(),
        parts,
        steps: SmallVec::from_slice(steps),
        now: request.now,
        legs,
        answer,
        returns,
    })))))
}

/// Makes `legs` give back the hits that they took, [in the background](Partitions::detach).
pub(super) fn give_back<P: Partitions>(
    partitions: &P,
    request: &Request<'_>,
    parts: Parts,
    steps: &[Step],
    legs: SmallVec<[Leg<P::Ticket>; 4]>,
) {
    let returns = legs
        .iter()
        .filter_map(|leg| verdict::give_back(partitions, &parts, steps, leg, request.now));
    let returns: Returns<P> = returns.collect();
    if returns.is_empty() {
        return;
    }
    let rest = Journey {
        partitions: partitions.clone(),
        parts,
        steps: SmallVec::new(),
        now: request.now,
        legs,
        // There is no caller for this answer.
        answer: Some(Err(StoreError::Unavailable)),
        returns,
    };
    Box::new(rest).detach();
}

type Returns<P> = SmallVec<[Returning<<P as Partitions>::Ticket>; 2]>;

/// Computes the answer, and starts to give back hits if it is a denial.
fn conclude<P: Partitions>(
    partitions: &P,
    parts: &Parts,
    steps: &[Step],
    legs: &[Leg<P::Ticket>],
    now: Timestamp,
) -> (Result<Verdicts, StoreError>, Returns<P>) {
    let answer = whole(parts, steps, legs);
    let is_allowed = answer.as_ref().is_ok_and(|verdicts| verdicts.allowed);
    // Requests that take nothing are executed in each partition, whatever the others answer.
    let has_taken = !is_allowed && steps.iter().any(|step| step.hits > 0);
    if answer.is_ok() && has_taken {
        let lost = legs
            .iter()
            .filter(|leg| leg.may_take && leg.answer().is_err_and(|it| it.may_be_executed()));
        lost.for_each(|leg| verdict::strand(partitions, leg.partition, &steps[leg.range.clone()]));
    }
    let back = legs.iter().filter(|_| has_taken);
    let returns = back.filter_map(|leg| verdict::give_back(partitions, parts, steps, leg, now));
    let returns = returns.collect();
    (answer, returns)
}

/// The pending answer of several partitions, or of one.
///
/// If it is dropped earlier, the request is still completed in the background, because nothing else
/// knows what to give back. With a single partition, the request is dropped with its ticket.
pub struct Ticket<P: Partitions>(State<P>);

enum State<P: Partitions> {
    One(P::Ticket),
    /// [`None`] once it has completed, or was detached.
    Several(Option<Box<Journey<P>>>),
}

impl<P: Partitions> Ticket<P> {
    /// The ticket of the only partition.
    #[must_use]
    pub const fn one(ticket: P::Ticket) -> Self {
        Self(State::One(ticket))
    }

    /// The ticket of a late answer, as in [`Store::late`](crate::Store::late), of a request in one partition.
    #[must_use]
    pub fn late(mut self) -> Option<Self> {
        match std::mem::replace(&mut self.0, State::Several(None)) {
            State::One(ticket) => P::late(ticket).map(Self::one),
            State::Several(_) => None,
        }
    }
}

impl<P: Partitions> Future for Ticket<P> {
    type Output = Result<Verdicts, StoreError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let several = match &mut self.0 {
            State::One(ticket) => return Pin::new(ticket).poll(cx),
            State::Several(several) => several,
        };
        let Some(journey) = several else {
            return Poll::Ready(Err(StoreError::Unavailable));
        };
        ready!(journey.poll_answer(cx));
        // A repeat under the same id must not arrive before the record is deleted.
        if journey.parts.once().is_some() || journey.partitions.answers_last() {
            ready!(journey.poll_returns(cx));
        }
        let answer = journey.answer.as_mut();
        // The answer goes to the caller; the rest only depends on its presence.
        let answer = answer.map(|answer| std::mem::replace(answer, Err(StoreError::Unavailable)));
        if let Some(journey) = several.take().filter(|journey| !journey.returns.is_empty()) {
            journey.detach();
        }
        Poll::Ready(answer.unwrap_or(Err(StoreError::Unavailable)))
    }
}

impl<P: Partitions> Drop for Ticket<P> {
    fn drop(&mut self) {
        if let State::Several(several) = &mut self.0
            && let Some(journey) = several.take()
        {
            journey.detach();
        }
    }
}

impl<P: Partitions> std::fmt::Debug for Ticket<P> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ticket").finish_non_exhaustive()
    }
}

/// The rest of a request whose caller has gone or has its answer: partitions that have not answered
/// yet, and hits being given back.
pub struct Rest<P: Partitions>(Box<Journey<P>>);

impl<P: Partitions> Future for Rest<P> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        ready!(self.0.poll_answer(cx));
        self.0.poll_returns(cx)
    }
}

impl<P: Partitions> std::fmt::Debug for Rest<P> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Rest").finish_non_exhaustive()
    }
}

struct Journey<P: Partitions> {
    partitions: P,
    parts: Parts,
    steps: SmallVec<[Step; 4]>,
    now: Timestamp,
    legs: SmallVec<[Leg<P::Ticket>; 4]>,
    /// Set once all partitions have answered.
    answer: Option<Result<Verdicts, StoreError>>,
    returns: Returns<P>,
}

// Nothing in it is pinned: tickets are `Unpin`, and polled in place.
impl<P: Partitions> Unpin for Journey<P> {}

impl<P: Partitions> Journey<P> {
    fn detach(self: Box<Self>) {
        let partitions = self.partitions.clone();
        partitions.detach(Rest(self));
    }

    /// Waits for all partitions, and starts giving back.
    fn poll_answer(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.answer.is_some() {
            return Poll::Ready(());
        }
        let mut waiting = false;
        for leg in &mut self.legs {
            if let Asked::Waiting(ticket) = &mut leg.asked {
                match Pin::new(ticket).poll(cx) {
                    Poll::Ready(answer) => leg.asked = Asked::Answered(answer),
                    Poll::Pending => waiting = true,
                }
            }
        }
        if waiting {
            return Poll::Pending;
        }
        let steps = &self.steps;
        let (answer, returns) =
            conclude(&self.partitions, &self.parts, steps, &self.legs, self.now);
        (self.answer, self.returns) = (Some(answer), returns);
        Poll::Ready(())
    }

    /// Waits until the outcome of giving back is known.
    fn poll_returns(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let partitions = &self.partitions;
        self.returns
            .retain(|it| match Pin::new(&mut it.ticket).poll(cx) {
                Poll::Pending => true,
                Poll::Ready(returned) => {
                    if !returned.is_ok_and(|verdicts| verdicts.fault().is_none()) {
                        partitions.stranded(it.partition, it.hits);
                    }
                    false
                }
            });
        match self.returns.is_empty() {
            true => Poll::Ready(()),
            false => Poll::Pending,
        }
    }
}
