//! The one way from a request to its decision.
//!
//! ```text
//! check -> Evaluation (matched against one snapshot) -> store -> Verdicts -> Decision
//!                                                        |          ^
//!                                                        `- Pending-'   a store that answers later
//! ```
//!
//! [`Limiter::ask`] goes as far as it can without waiting, [`Limiter::finish`] goes the rest; checks,
//! peeks, explanations, permits and reservations differ in what they ask and what they read.

mod ruling;
mod unanswered;

use std::sync::Arc;

use arc_swap::Guard;
use ratekeeper_core::Timestamp;
use ratekeeper_store::{
    Answer, Execution, Extra, Never, Request, Step, Store, StoreError, Verdicts,
};
use smallvec::SmallVec;

pub use ruling::Ruling;

use crate::Snapshot;
use crate::decision::{Answered, Decision};
use crate::explain::{Explanation, SharedCounter};
use crate::limiter::Limiter;
use crate::observer::CheckObserver;
use crate::plan::{Context, Plan};
use crate::request::{Check, recosted};

/// The part that concurrency limits have in a request: none, unless permits come back or nothing
/// is taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Concurrency {
    Included,
    Skipped,
}

/// A request, matched against one snapshot of the rules.
#[derive(Debug)]
pub(crate) struct Evaluation {
    pub(crate) decision: Decision,
    pub(crate) plan: Plan,
    /// Time of the request, by the limiter's clock.
    pub(crate) now: Timestamp,
    /// [`None`] unless the request is traced. Shared with the edge, which a store that answers later outlives.
    observer: Option<Arc<dyn CheckObserver>>,
}

impl Evaluation {
    /// Makes an empty evaluation, to be filled in place: moving it costs as much as matching.
    #[inline(always)]
    pub(crate) fn new(snapshot: Guard<Arc<Snapshot>>, now: Timestamp) -> Self {
        Self {
            decision: Decision::begin(snapshot),
            plan: Plan::default(),
            now,
            observer: None,
        }
    }

    #[cold] // Few requests are traced.
    fn observe(&mut self, check: &Check<'_>, observer: &Arc<dyn CheckObserver>) {
        let counters = self.plan.steps.len();
        observer.matched(check, self.decision.snapshot(), counters);
        self.observer = Some(Arc::clone(observer));
    }

    /// Reads the verdicts into the decision, and passes each limit's answer to `each`.
    #[inline(always)] // The verdicts are large, and read where they lie.
    pub(crate) fn fill(&mut self, verdicts: &Verdicts, each: impl FnMut(&Step, &Answered)) {
        if let Some(observer) = &self.observer {
            observer.answered();
        }
        let (snapshot, statuses) = self.decision.parts();
        self.plan.read(snapshot, verdicts, statuses, each);
        self.decision.conclude(verdicts.allowed);
        if let Some(observer) = &self.observer {
            observer.combined(&self.decision);
        }
    }
}

/// A request whose store has not answered yet. It keeps the matched rules, so that nothing is
/// parsed or matched again, in a single allocation.
#[derive(Debug)]
pub struct Pending<T>(Box<Inner<T>>);

#[derive(Debug)]
struct Inner<T> {
    evaluation: Evaluation,
    /// [`None`] once it has been awaited.
    ticket: Option<T>,
}

impl<T: Future<Output = Result<Verdicts, StoreError>> + Unpin> Inner<T> {
    fn new(evaluation: Evaluation, ticket: T) -> Box<Self> {
        Box::new(Self {
            evaluation,
            ticket: Some(ticket),
        })
    }

    /// Waits for the store's answer.
    async fn answer(&mut self) -> Result<Verdicts, StoreError> {
        match &mut self.ticket {
            Some(ticket) => ticket.await,
            None => Err(StoreError::Unavailable),
        }
    }
}

impl<T> Pending<T> {
    /// Time at which the store was asked, by the limiter's clock.
    #[must_use]
    pub const fn asked_at(&self) -> Timestamp {
        self.0.evaluation.now
    }
}

impl<S: Store> Limiter<S> {
    /// Decides `check` now, and charges its hits.
    ///
    /// A fault of the store is not an error: the rules' failure modes answer, and the decision says
    /// that it is degraded.
    pub fn check(&self, check: &Check<'_>) -> impl Future<Output = Decision> + Send {
        let mut evaluation = Evaluation::new(self.load(), self.clock().now());
        self.evaluate(&mut evaluation, check, Concurrency::Skipped);
        let answer = match self.send(&evaluation, None) {
            Answer::Decided(ref verdicts) => {
                self.read(&mut evaluation, verdicts);
                Answer::Decided(evaluation.decision)
            }
            Answer::Pending(ticket) => Answer::Pending(Inner::new(evaluation, ticket)),
        };
        async move {
            match answer {
                Answer::Decided(decision) => decision,
                Answer::Pending(mut pending) => {
                    let answer = pending.answer().await;
                    self.conclude(&mut pending, answer);
                    pending.evaluation.decision
                }
            }
        }
    }

    /// Asks the store to decide `check` as of `now`, a time just read from [`Limiter::clock`]. A
    /// decision made at once is passed to `read` by reference, since it is large, and moving it costs
    /// as much as matching; otherwise the request is returned, to be [waited for](Limiter::finish).
    /// Stores decide in the order in which they are asked.
    #[inline]
    pub fn ask<D>(
        &self,
        check: &Check<'_>,
        now: Timestamp,
        read: impl FnOnce(&Ruling<'_>) -> D,
    ) -> Answer<Pending<S::Ticket>, D> {
        let mut evaluation = Evaluation::new(self.load(), now);
        self.evaluate(&mut evaluation, check, Concurrency::Skipped);
        match self.send(&evaluation, None) {
            // By reference: verdicts are read in place too.
            Answer::Decided(ref verdicts) => {
                self.read(&mut evaluation, verdicts);
                Answer::Decided(read(&Ruling::new(&evaluation, verdicts)))
            }
            Answer::Pending(ticket) => Answer::Pending(Pending(Inner::new(evaluation, ticket))),
        }
    }

    /// Waits for the store's answer to a request that was [asked](Limiter::ask) about, and passes
    /// the ruling to `read`.
    pub async fn finish<D>(
        &self,
        pending: Pending<S::Ticket>,
        read: impl FnOnce(&Ruling<'_>) -> D,
    ) -> D {
        let mut pending = pending.0;
        let answer = pending.answer().await;
        let verdicts = self.conclude(&mut pending, answer);
        read(&Ruling::new(&pending.evaluation, &verdicts))
    }

    /// Peeks at the current state of `check`, concurrency limits included; true if one hit on each of its
    /// descriptors would pass. Takes nothing, no matter what hits the descriptors have, and creates no
    /// counter.
    pub async fn peek(&self, check: &Check<'_>) -> (Decision, bool) {
        let looks = recosted(check.descriptors, |_| 0);
        let check = Check {
            descriptors: &looks,
            ..*check
        };
        let mut evaluation = Evaluation::new(self.load(), self.clock().now());
        self.evaluate(&mut evaluation, &check, Concurrency::Included);
        let verdicts = self.verdicts(&evaluation, None).await;
        evaluation.fill(&verdicts, |_, _| {});
        let Evaluation { decision, plan, .. } = evaluation;
        let would_allow = plan.would_allow(decision.snapshot(), &verdicts);
        (decision, would_allow)
    }

    /// Explains how `check` is decided, and takes nothing: which nodes match, which limits count,
    /// and what each would answer to one hit. It is not counted in statistics.
    pub async fn explain(&self, check: &Check<'_>) -> Explanation {
        self.explain_with(check, Concurrency::Skipped).await
    }

    /// Explains as [`Self::explain`] does, concurrency limits included: for whoever wants to know how much
    /// of each limit is used.
    pub async fn inspect(&self, check: &Check<'_>) -> Explanation {
        self.explain_with(check, Concurrency::Included).await
    }

    async fn explain_with(&self, check: &Check<'_>, concurrency: Concurrency) -> Explanation {
        let looks = recosted(check.descriptors, |_| 0);
        let check = Check {
            descriptors: &looks,
            ..*check
        };
        let mut evaluation = Evaluation::new(self.load(), self.clock().now());
        self.match_rules(&mut evaluation, &check, concurrency);
        let verdicts = self.verdicts(&evaluation, None).await;
        let snapshot = evaluation.decision.snapshot();
        let (plan, now) = (&evaluation.plan, evaluation.now);
        let shared = |step: &Step| SharedCounter::of(self.store(), step);
        Explanation::new(snapshot, &check, plan, (&verdicts, now), &shared)
    }

    /// Matches `check`, and counts the parts that no limit matched.
    #[inline]
    pub(crate) fn evaluate(
        &self,
        evaluation: &mut Evaluation,
        check: &Check<'_>,
        concurrency: Concurrency,
    ) {
        self.match_rules(evaluation, check, concurrency);
        self.totals().count(&evaluation.plan.missed, check);
        if let Some(observer) = check.observer {
            evaluation.observe(check, observer);
        }
    }

    #[inline]
    fn match_rules(
        &self,
        evaluation: &mut Evaluation,
        check: &Check<'_>,
        concurrency: Concurrency,
    ) {
        let context = Context {
            snapshot: evaluation.decision.snapshot(),
            profile: self.profile(),
            now: evaluation.now,
            permits: concurrency == Concurrency::Included,
            waiting: check.waiting,
        };
        evaluation.plan.fill(&context, check);
    }

    /// Asks the store.
    #[inline]
    pub(crate) fn send(&self, evaluation: &Evaluation, extra: Option<&Extra>) -> Answer<S::Ticket> {
        let Evaluation {
            decision,
            plan,
            now,
            ..
        } = evaluation;
        if plan.steps.is_empty() {
            return Answer::Decided(Verdicts {
                allowed: true,
                outcomes: SmallVec::new(),
                at: *now,
                execution: Execution::Now,
            });
        }
        let snapshot = decision.snapshot();
        self.store().decide(&Request {
            extra,
            named_by: Some(snapshot.namer.hash_key()),
            ..Request::new(&plan.steps, plan.mode(snapshot), *now)
        })
    }

    /// Returns the store's verdicts, or else those of the failure modes.
    pub(crate) async fn verdicts(
        &self,
        evaluation: &Evaluation,
        extra: Option<&Extra>,
    ) -> Verdicts {
        match self.send(evaluation, extra) {
            Answer::Decided(verdicts) => verdicts,
            Answer::Pending(ticket) => self.heard(evaluation, extra, ticket.await),
        }
    }

    /// Reads the answer of a store that answered later.
    fn conclude(
        &self,
        pending: &mut Inner<S::Ticket>,
        answer: Result<Verdicts, StoreError>,
    ) -> Verdicts {
        let evaluation = &mut pending.evaluation;
        let verdicts = match answer {
            Err(StoreError::Timeout) => {
                let late = pending.ticket.take().and_then(S::late);
                self.timed_out(evaluation, late)
            }
            answer => self.heard(evaluation, None, answer),
        };
        self.read(evaluation, &verdicts);
        verdicts
    }

    /// Reads the verdicts into the decision, and tells the fallback the remaining hits.
    #[inline(always)] // As for `Evaluation::fill`.
    fn read(&self, evaluation: &mut Evaluation, verdicts: &Verdicts) {
        let now = evaluation.now;
        evaluation.fill(verdicts, |step, answered| self.note(step, answered, now));
        if let Some(meter) = self.meter() {
            let snapshot = evaluation.decision.snapshot();
            evaluation.plan.meter(snapshot, verdicts, now, meter);
        }
    }
}

impl<S: Store<Ticket = Never>> Limiter<S> {
    /// Decides `check` as of `now`, for stores that always decide at once: no runtime needed.
    pub fn check_at(&self, check: &Check<'_>, now: Timestamp) -> Decision {
        let mut evaluation = Evaluation::new(self.load(), now);
        self.evaluate(&mut evaluation, check, Concurrency::Skipped);
        let Answer::Decided(ref verdicts) = self.send(&evaluation, None);
        self.read(&mut evaluation, verdicts);
        evaluation.decision
    }

    /// Decides `check` as of `now`, and passes the ruling to `read`, for callers that want to see all
    /// limits that took part.
    pub fn ask_at<D>(
        &self,
        check: &Check<'_>,
        now: Timestamp,
        read: impl FnOnce(&Ruling<'_>) -> D,
    ) -> D {
        let mut evaluation = Evaluation::new(self.load(), now);
        self.evaluate(&mut evaluation, check, Concurrency::Skipped);
        let Answer::Decided(ref verdicts) = self.send(&evaluation, None);
        self.read(&mut evaluation, verdicts);
        read(&Ruling::new(&evaluation, verdicts))
    }

    /// Decides `check` now.
    pub fn check_now(&self, check: &Check<'_>) -> Decision {
        self.check_at(check, self.clock().now())
    }

    /// Explains at once, as [`Self::explain`] does.
    pub fn explain_now(&self, check: &Check<'_>) -> Explanation {
        let mut explaining = std::pin::pin!(self.explain(check));
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        loop {
            // A store without tickets always answers at once.
            if let std::task::Poll::Ready(explanation) = explaining.as_mut().poll(&mut context) {
                return explanation;
            }
        }
    }
}
