//! The limiter in this process as an enforcer.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use ratekeeper_core::{Micros, Timestamp};
use ratekeeper_http::answer::{Denial, RequestStatus};
use ratekeeper_limiter::{
    Admitted, Bill, Check, Decision, HeldSlots, Limiter, PendingAdmission, Queued, Receipt,
    ReceiptMode, Scope, Snapshot, TopDecision,
};
use ratekeeper_rules::{RuleSet, ShedRules};
use ratekeeper_store::{Answer, Store};
use smallvec::SmallVec;

use crate::permit::{Home, Permit, release, send};
use crate::queued::{LimitReport, QueuedRequest};
use crate::{Admission, AdmissionVerdict, AnswerOf, EnforceOptions, Enforcer, Payment, Turn, Undo};

impl<S: Store> Enforcer for Arc<Limiter<S>> {
    type Permit = Permit<S>;
    type Queued = Box<QueuedRequest<S>>;
    type Future = AdmissionFuture<S>;

    fn with_rules<T>(&self, read: impl FnOnce(&RuleSet) -> T) -> T {
        read(self.snapshot().rules())
    }

    fn shed_rules(&self) -> Option<Arc<ShedRules>> {
        self.snapshot().shed().cloned()
    }

    fn fingerprint(&self, secret: &str) -> String {
        self.snapshot().fingerprint(secret)
    }

    fn tenant_hash(&self, key: &str, name: &str) -> Option<u64> {
        Some(self.snapshot().tenant_hash(key, name))
    }

    fn now(&self) -> Timestamp {
        self.clock().now()
    }

    fn ask(&self, check: &Check<'_>, terms: EnforceOptions) -> AnswerOf<Self> {
        let now = self.clock().now();
        let stage = AdmissionContext {
            terms,
            now,
            before: None,
        };
        let scope = |snapshot: &Snapshot, number: usize| {
            let descriptor = check.descriptors().nth(number)?;
            Some(snapshot.scope(descriptor.domain, descriptor.entries))
        };
        let receipt = match terms.may_be_shed {
            true => ReceiptMode::Kept,
            false => ReceiptMode::Dropped,
        };
        match self.admit(check, now, receipt) {
            Answer::Decided(admitted) => Answer::Decided(stage.conclude(self, admitted, scope)),
            Answer::Pending(admission) => {
                let snapshot = self.snapshot();
                let all = 0..check.descriptors().len();
                let scopes = all.filter_map(|number| scope(&snapshot, number));
                Answer::Pending(AdmissionFuture {
                    limiter: Arc::clone(self),
                    pending: Some(Pending {
                        admission,
                        scopes: scopes.collect(),
                        stage,
                    }),
                })
            }
        }
    }

    fn at_turn(&self, mut queued: Box<QueuedRequest<S>>) -> AnswerOf<Self> {
        let Some((deferred, scopes, terms)) = queued.take_permits() else {
            return Answer::Decided(queued.pass(None));
        };
        let now = self.clock().now();
        let stage = AdmissionContext {
            terms,
            now,
            before: Some(queued),
        };
        match self.admit_deferred(deferred, now) {
            Answer::Decided(admitted) => {
                let scope = |_: &Snapshot, number: usize| scopes.get(number).cloned();
                Answer::Decided(stage.conclude(self, admitted, scope))
            }
            Answer::Pending(admission) => Answer::Pending(AdmissionFuture {
                limiter: Arc::clone(self),
                pending: Some(Pending {
                    admission,
                    scopes,
                    stage,
                }),
            }),
        }
    }
}

/// The subject of each descriptor of a request, without secrets: for a denial at a later time, when
/// the request is no longer available.
pub(crate) type Scopes = SmallVec<[Scope; 2]>;

/// A pending decision of a store. Dropping it gives back what the store may have taken: permits at
/// once, and, once the store has answered, what was reserved of budgets and a turn with the hits
/// taken along with it. Other hits counted by windows stay counted.
pub struct AdmissionFuture<S: Store> {
    limiter: Arc<Limiter<S>>,
    pending: Option<Pending<S>>,
}

struct Pending<S: Store> {
    admission: PendingAdmission<S::Ticket>,
    scopes: Scopes,
    stage: AdmissionContext<S>,
}

impl<S: Store> Future for AdmissionFuture<S> {
    type Output = Admission<Permit<S>, Box<QueuedRequest<S>>>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        const ONCE: &str = "a future is not polled after it was ready";
        let Self { limiter, pending } = self.get_mut();
        let answer = ready!(pending.as_mut().expect(ONCE).admission.poll(cx));
        let Pending {
            admission,
            scopes,
            stage,
        } = pending.take().expect(ONCE);
        let admitted = admission.conclude(limiter, answer);
        let scope = |_: &Snapshot, number: usize| scopes.get(number).cloned();
        Poll::Ready(stage.conclude(limiter, admitted, scope))
    }
}

impl<S: Store> Drop for AdmissionFuture<S> {
    fn drop(&mut self) {
        let Some(Pending { admission, .. }) = self.pending.take() else {
            return;
        };
        if let Some(slots) = admission.slots() {
            release(&self.limiter, slots);
        }
        if admission.must_be_heard() {
            send(Some(admission.abandon(Arc::clone(&self.limiter))));
        }
    }
}

impl<S: Store> fmt::Debug for AdmissionFuture<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AdmissionFuture").finish_non_exhaustive()
    }
}

/// The inputs of a decision besides the limits.
#[derive(Debug)]
struct AdmissionContext<S: Store> {
    terms: EnforceOptions,
    now: Timestamp,
    /// The state of its rate limits, when its permits are decided.
    before: Option<Box<QueuedRequest<S>>>,
}

impl<S: Store> AdmissionContext<S> {
    /// Turns the decision into an admission; `scope` returns the subject of a descriptor.
    fn conclude(
        self,
        limiter: &Arc<Limiter<S>>,
        admitted: Admitted,
        scope: impl Fn(&Snapshot, usize) -> Option<Scope>,
    ) -> Admission<Permit<S>, Box<QueuedRequest<S>>> {
        let Self { terms, now, before } = self;
        let Admitted {
            decision,
            policies,
            slots,
            queued,
            receipt,
            bill,
        } = admitted;
        let scope = |number: usize| scope(decision.snapshot(), number);
        let mut limits = RequestStatus::new(&policies, &decision, now);
        let delay = span(decision.delay());
        if decision.allowed() && delay > terms.wait_max {
            limits.deny_for(delay - terms.wait_max);
        }
        let kind = match limits.allowed {
            true => TopDecision::Allowed,
            false => TopDecision::Denied,
        };
        // A request that waited for its turn was counted when it came.
        let is_new = before.is_none() || !limits.allowed;
        if is_new {
            count_top(limiter, &decision, kind, scope);
            if !decision.shadowed().is_empty() {
                limiter.top().count_shadowed(&decision, scope);
            }
        }
        let report = LimitReport::new(&limits, terms);
        // A layer that only counts lets a denied request pass all the same, and that pays too.
        let payment = bill.map(|bill| payment(limiter, bill));
        if !limits.allowed {
            give_up(limiter, slots, queued);
            let verdict = AdmissionVerdict::Deny(denial(limits, &decision, scope));
            return Admission {
                payment,
                ..report.admission(verdict)
            };
        }
        let permit = slots.map(|slots| Permit::new(Arc::clone(limiter), slots));
        match (queued, before) {
            (None, None) => Admission {
                undo: receipt.map(|receipt| undo(limiter, receipt)),
                payment,
                ..report.admission(AdmissionVerdict::Pass(permit))
            },
            (None, Some(mut before)) => {
                before.replace_report(report);
                before.pass(permit)
            }
            (Some(queued), _) => {
                let descriptors = 0..decision.answers().len();
                let scopes = || descriptors.filter_map(scope).collect();
                let (turn, mut queued) = wait(limiter, *queued, (report, terms), scopes);
                queued.payment = payment;
                Admission::waiting(turn, Box::new(queued))
            }
        }
    }
}

/// Gives back what a denied request holds already, if the wait is the reason for the denial, or if the store did not
/// answer.
fn give_up<S: Store>(
    limiter: &Arc<Limiter<S>>,
    slots: Option<HeldSlots>,
    queued: Option<Box<Queued>>,
) {
    slots.iter().for_each(|slots| release(limiter, slots));
    if let Some(queued) = queued {
        send(queued.receipt.give_back(limiter));
    }
}

/// The denial of a request with these limits.
fn denial(
    limits: RequestStatus<'_>,
    decision: &Decision,
    scope: impl Fn(usize) -> Option<Scope>,
) -> Box<Denial> {
    let scope = decision.binding_descriptor().and_then(scope);
    let limits = RequestStatus {
        scope: scope.as_ref().map(Scope::text),
        ..limits
    };
    let denial = Denial::new(limits, "").by(decision);
    Box::new(match &scope {
        Some(scope) => denial.of(scope),
        None => denial,
    })
}

/// The turn of a request that waits, and what is needed when it has come.
fn wait<S: Store>(
    limiter: &Arc<Limiter<S>>,
    queued: Queued,
    (report, terms): (LimitReport, EnforceOptions),
    scopes: impl FnOnce() -> Scopes,
) -> (Turn, QueuedRequest<S>) {
    let turn = queued.turn.map(|turn| Turn {
        after: span(turn.after),
        bucket: Some(turn.counter),
        rule: Some(turn.rule),
        span: span(turn.span),
    });
    let permits = queued.permits;
    let permits = permits.map(|deferred| (deferred, scopes(), terms));
    let mut request = QueuedRequest::new(Arc::clone(limiter), queued.receipt, report, permits);
    request.may_be_shed = terms.may_be_shed;
    (turn.unwrap_or_default(), request)
}

/// Counts a decision among those of the keys that are limited most.
fn count_top<S: Store>(
    limiter: &Limiter<S>,
    decision: &Decision,
    kind: TopDecision,
    scope: impl Fn(usize) -> Option<Scope>,
) {
    if (kind == TopDecision::Denied || limiter.top().wants(decision))
        && let Some(scope) = decision.binding_descriptor().and_then(scope)
    {
        limiter.top().count_scope(decision, kind, scope);
    }
}

/// Gives back by `receipt`, at once or in the background.
pub(crate) fn undo<S: Store>(limiter: &Arc<Limiter<S>>, receipt: Receipt) -> Undo {
    let (limiter, home) = (Arc::clone(limiter), Home::here());
    Undo::new(move || home.send(receipt.give_back(&limiter)))
}

/// Pays `bill`, at once or in the background.
fn payment<S: Store>(limiter: &Arc<Limiter<S>>, bill: Bill) -> Payment {
    let (limiter, home) = (Arc::clone(limiter), Home::here());
    Payment::new(move |hits| home.send(bill.pay(&limiter, hits)))
}

const fn span(micros: Micros) -> Duration {
    Duration::from_micros(micros.get())
}
