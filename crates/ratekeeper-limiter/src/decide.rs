//! The one way from a request to its decision.
//!
//! ```text
//! check -> MatchedCheck (matched against one snapshot) -> store -> Verdicts -> Decision
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
use ratekeeper_rules::secret;
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
use crate::purpose::Purpose;
use crate::request::Check;
use crate::stats::shortened;
use crate::usage::UsageMeter;

/// A request, matched against one snapshot of the rules.
#[derive(Debug)]
pub(crate) struct MatchedCheck {
    pub(crate) decision: Decision,
    pub(crate) plan: Plan,
    /// Time of the request, by the limiter's clock.
    pub(crate) now: Timestamp,
    /// [`None`] unless the request is traced. Shared with the edge, which a store that answers later outlives.
    observer: Option<Arc<dyn CheckObserver>>,
}

impl MatchedCheck {
    /// Makes an empty one, to be filled in place: moving it costs as much as matching.
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
    fn trace(&mut self, check: &Check<'_>, observer: &Arc<dyn CheckObserver>) {
        let counters = self.plan.steps.len();
        observer.matched(check, self.decision.snapshot(), counters);
        self.observer = Some(Arc::clone(observer));
    }

    /// Tells the meter who calls, where it has not heard of the tenant in this hour.
    fn name_callers(&self, check: &Check<'_>, meter: &UsageMeter) {
        let rules = self.decision.snapshot().rules();
        for (number, tenant) in self.plan.tenants() {
            meter.name(self.now, tenant, || {
                let descriptor = check.descriptors().nth(usize::from(number))?;
                let domain = rules.domain(descriptor.domain)?;
                let entry = descriptor
                    .entries
                    .get(domain.tenant_at(descriptor.entries)?)?;
                let shown = match domain.is_secret(entry.key) {
                    true => secret::end(entry.value).into(),
                    false => shortened(entry.value),
                };
                let domain = rules.tenants_domain(domain);
                Some((Arc::clone(domain), shown.into()))
            });
        }
    }

    /// The request to a store, for the steps of the plan.
    #[inline]
    fn request<'e>(&'e self, extra: Option<&'e Extra>) -> Request<'e> {
        let mode = self.plan.mode(self.decision.snapshot());
        Request {
            extra,
            ..Request::new(&self.plan.steps, mode, self.now)
        }
    }

    /// Reads the verdicts into the decision, and passes each limit's answer to `each`.
    #[inline(always)] // The verdicts are large, and read where they lie.
    pub(crate) fn fill(&mut self, verdicts: &Verdicts, each: impl FnMut(&Step, &Answered)) {
        if let Some(observer) = &self.observer {
            observer.answered();
        }
        let (snapshot, answers, shadowed) = self.decision.parts();
        self.plan
            .read(snapshot, verdicts, (answers, shadowed), each);
        self.decision.conclude(verdicts.allowed);
        if let Some(observer) = &self.observer {
            observer.combined(&self.decision);
        }
    }
}

/// A request whose store has not answered yet. It keeps the check and the rules that it matched, so that nothing is
/// parsed or matched again, in a single allocation.
#[derive(Debug)]
pub struct Pending<'a, T>(Box<Kept<'a, T>>);

#[derive(Debug)]
struct Kept<'a, T> {
    check: Check<'a>,
    outstanding: Outstanding<T>,
}

/// A matched check that the store has yet to answer.
#[derive(Debug)]
struct Outstanding<T> {
    matched: MatchedCheck,
    /// [`None`] once it has been awaited.
    ticket: Option<T>,
}

impl<T: Future<Output = Result<Verdicts, StoreError>> + Unpin> Outstanding<T> {
    const fn new(matched: MatchedCheck, ticket: T) -> Self {
        Self {
            matched,
            ticket: Some(ticket),
        }
    }

    /// Waits for the store's answer.
    async fn answer(&mut self) -> Result<Verdicts, StoreError> {
        match &mut self.ticket {
            Some(ticket) => ticket.await,
            None => Err(StoreError::Unavailable),
        }
    }
}

impl<T> Pending<'_, T> {
    /// Time at which the store was asked, by the limiter's clock.
    #[must_use]
    pub const fn asked_at(&self) -> Timestamp {
        self.0.outstanding.matched.now
    }
}

impl<S: Store> Limiter<S> {
    /// Decides `check` now, and charges its hits.
    ///
    /// A fault of the store is not an error: the rules' failure modes answer, and the decision says
    /// that it is degraded.
    pub fn check(&self, check: &Check<'_>) -> impl Future<Output = Decision> + Send {
        let answer = self.decide_with(check, self.clock().now(), |matched, ticket| {
            Box::new(Outstanding::new(matched, ticket))
        });
        async move {
            match answer {
                Answer::Decided(decision) => decision,
                Answer::Pending(mut outstanding) => {
                    let answer = outstanding.answer().await;
                    self.conclude(&mut outstanding, answer);
                    outstanding.matched.decision
                }
            }
        }
    }

    /// Asks the store to decide `check` as of `now`, a time just read from [`Limiter::clock`]. A
    /// decision made at once is passed to `read` by reference, since it is large, and moving it costs
    /// as much as matching; otherwise the request is returned, to be [waited for](Limiter::finish).
    /// Stores decide in the order in which they are asked.
    #[inline]
    pub fn ask<'a, D>(
        &self,
        check: &Check<'a>,
        now: Timestamp,
        read: impl FnOnce(&Ruling<'_>) -> D,
    ) -> Answer<Pending<'a, S::Ticket>, D> {
        self.ask_with(check, now, read, |matched, ticket| {
            Pending(Box::new(Kept {
                check: check.clone(),
                outstanding: Outstanding::new(matched, ticket),
            }))
        })
    }

    /// Waits for the store's answer to a request that was [asked](Limiter::ask) about, and passes
    /// the ruling to `read`.
    pub async fn finish<D>(
        &self,
        pending: Pending<'_, S::Ticket>,
        read: impl FnOnce(&Ruling<'_>) -> D,
    ) -> D {
        let mut kept = pending.0;
        let Kept { check, outstanding } = &mut *kept;
        let answer = outstanding.answer().await;
        let verdicts = self.conclude(outstanding, answer);
        read(&Ruling::new(check, &outstanding.matched, &verdicts))
    }

    /// Peeks at the current state of `check`, concurrency limits included; true if one hit on each of its
    /// descriptors would pass. Takes nothing, no matter what hits the descriptors have, and creates no
    /// counter.
    pub async fn peek(&self, check: &Check<'_>) -> (Decision, bool) {
        let mut matched = self.matched(check, self.clock().now(), Purpose::Peek);
        let verdicts = self.verdicts(&matched, None).await;
        matched.fill(&verdicts, |_, _| {});
        let MatchedCheck { decision, plan, .. } = matched;
        let would_allow = plan.would_allow(decision.snapshot(), &verdicts);
        (decision, would_allow)
    }

    /// Explains how `check` is decided, and takes nothing: which nodes match, which limits count,
    /// and what each would answer to one hit. It is not counted in statistics.
    pub async fn explain(&self, check: &Check<'_>) -> Explanation {
        self.explain_for(check, Purpose::Explain).await
    }

    /// Explains as [`Self::explain`] does, concurrency limits included: for whoever wants to know how much
    /// of each limit is used.
    pub async fn inspect(&self, check: &Check<'_>) -> Explanation {
        self.explain_for(check, Purpose::Inspect).await
    }

    async fn explain_for(&self, check: &Check<'_>, purpose: Purpose) -> Explanation {
        let matched = self.matched(check, self.clock().now(), purpose);
        let verdicts = self.verdicts(&matched, None).await;
        self.explained(check, &matched, &verdicts)
    }

    fn explained(
        &self,
        check: &Check<'_>,
        matched: &MatchedCheck,
        verdicts: &Verdicts,
    ) -> Explanation {
        let snapshot = matched.decision.snapshot();
        let (plan, now) = (&matched.plan, matched.now);
        let shared = |step: &Step| SharedCounter::of(self.store(), step);
        Explanation::new(snapshot, check, plan, (verdicts, now), &shared)
    }

    /// Decides `check`; `keep` keeps what was matched until the store answers.
    #[inline(always)]
    fn decide_with<P>(
        &self,
        check: &Check<'_>,
        now: Timestamp,
        keep: impl FnOnce(MatchedCheck, S::Ticket) -> P,
    ) -> Answer<P, Decision> {
        let mut matched = self.matched(check, now, Purpose::Charge);
        match self.send(&matched, None) {
            // By reference: verdicts are read in place too.
            Answer::Decided(ref verdicts) => {
                self.read_verdicts(&mut matched, verdicts);
                Answer::Decided(matched.decision)
            }
            Answer::Pending(ticket) => Answer::Pending(keep(matched, ticket)),
        }
    }

    /// Decides likewise, and passes the ruling to `read`, which need not move it.
    #[inline(always)]
    fn ask_with<D, P>(
        &self,
        check: &Check<'_>,
        now: Timestamp,
        read: impl FnOnce(&Ruling<'_>) -> D,
        keep: impl FnOnce(MatchedCheck, S::Ticket) -> P,
    ) -> Answer<P, D> {
        let mut matched = self.matched(check, now, Purpose::Charge);
        match self.send(&matched, None) {
            Answer::Decided(ref verdicts) => {
                self.read_verdicts(&mut matched, verdicts);
                Answer::Decided(read(&Ruling::new(check, &matched, verdicts)))
            }
            Answer::Pending(ticket) => Answer::Pending(keep(matched, ticket)),
        }
    }

    /// `check` as of `now`, matched against the rules in force for `purpose`.
    #[inline(always)] // It is filled where its caller keeps it.
    pub(crate) fn matched(
        &self,
        check: &Check<'_>,
        now: Timestamp,
        purpose: Purpose,
    ) -> MatchedCheck {
        let mut matched = MatchedCheck::new(self.load(), now);
        self.begin(&mut matched, check, purpose);
        matched
    }

    /// Matches `check` against the rules of `matched`, for `purpose`.
    #[inline]
    pub(crate) fn begin(&self, matched: &mut MatchedCheck, check: &Check<'_>, purpose: Purpose) {
        let context = Context {
            snapshot: matched.decision.snapshot(),
            profile: self.profile(),
            now: matched.now,
            purpose,
            waiting: check.waiting,
            budgets: check.budgets,
        };
        matched.plan.fill(&context, check);
        if !purpose.is_counted() {
            return;
        }
        self.totals().count(&matched.plan.missed, check);
        if let Some(meter) = self.meter() {
            matched.name_callers(check, meter);
        }
        if let Some(growth) = self.growth()
            && purpose.hits(1) > 0
            && growth.wants()
        {
            matched
                .plan
                .watch(matched.decision.snapshot(), check, growth);
        }
        if let Some(observer) = &check.observer {
            matched.trace(check, observer);
        }
    }

    /// Asks the store.
    #[inline]
    pub(crate) fn send(&self, matched: &MatchedCheck, extra: Option<&Extra>) -> Answer<S::Ticket> {
        if matched.plan.steps.is_empty() {
            return Answer::Decided(Verdicts {
                allowed: true,
                outcomes: SmallVec::new(),
                at: matched.now,
                execution: Execution::Now,
            });
        }
        let namer = &matched.decision.snapshot().namer;
        self.store().decide(&Request {
            named_by: Some(namer.hash_key()),
            ..matched.request(extra)
        })
    }

    /// Returns the store's verdicts, or else those of the failure modes.
    pub(crate) async fn verdicts(&self, matched: &MatchedCheck, extra: Option<&Extra>) -> Verdicts {
        match self.send(matched, extra) {
            Answer::Decided(verdicts) => verdicts,
            Answer::Pending(ticket) => self.resolve_answer(matched, extra, ticket.await),
        }
    }

    /// Reads the answer of a store that answered later.
    fn conclude(
        &self,
        outstanding: &mut Outstanding<S::Ticket>,
        answer: Result<Verdicts, StoreError>,
    ) -> Verdicts {
        let matched = &mut outstanding.matched;
        let verdicts = match answer {
            Err(StoreError::Timeout) => {
                let late = outstanding.ticket.take().and_then(S::late);
                self.timed_out(matched, late)
            }
            answer => self.resolve_answer(matched, None, answer),
        };
        self.read_verdicts(matched, &verdicts);
        verdicts
    }

    /// Reads the verdicts into the decision, tells the fallback the remaining hits, and counts the call for bills.
    #[inline(always)] // As for `MatchedCheck::fill`.
    fn read_verdicts(&self, matched: &mut MatchedCheck, verdicts: &Verdicts) {
        let now = matched.now;
        matched.fill(verdicts, |step, answered| self.observe(step, answered, now));
        self.count_call(matched, verdicts);
    }

    /// Counts the call for its tenants, if they are wanted.
    #[inline]
    pub(crate) fn count_call(&self, matched: &MatchedCheck, verdicts: &Verdicts) {
        if let Some(meter) = self.meter() {
            let snapshot = matched.decision.snapshot();
            let (plan, now) = (&matched.plan, matched.now);
            plan.meter(snapshot, verdicts, now, meter);
        }
    }
}

/// Stores that always decide at once need no runtime.
impl<S: Store<Ticket = Never>> Limiter<S> {
    /// Decides `check` now.
    pub fn check_now(&self, check: &Check<'_>) -> Decision {
        self.check_at(check, self.clock().now())
    }

    /// Decides `check` as of `now`.
    pub fn check_at(&self, check: &Check<'_>, now: Timestamp) -> Decision {
        let Answer::Decided(decision) = self.decide_with(check, now, |_, never| never);
        decision
    }

    /// Decides `check` as of `now`, and passes the ruling to `read`, for callers that want to see all
    /// limits that took part.
    pub fn ask_at<D>(
        &self,
        check: &Check<'_>,
        now: Timestamp,
        read: impl FnOnce(&Ruling<'_>) -> D,
    ) -> D {
        let Answer::Decided(answer) = self.ask_with(check, now, read, |_, never| never);
        answer
    }

    /// Explains at once, as [`Self::explain`] does.
    pub fn explain_now(&self, check: &Check<'_>) -> Explanation {
        let matched = self.matched(check, self.clock().now(), Purpose::Explain);
        let Answer::Decided(verdicts) = self.send(&matched, None);
        self.explained(check, &matched, &verdicts)
    }
}
