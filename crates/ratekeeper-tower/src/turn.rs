//! Acts on an enforcer's answer: a request is passed on, held back or refused here and nowhere else.

use std::hash::BuildHasher;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Extensions, HeaderMap, Request, Response};
use http_body::Body;
use pin_project_lite::pin_project;
use ratekeeper_core::Micros;
use ratekeeper_http::answer::{Denial, Form, HeaderLines, HttpDenial, Refusal};
use ratekeeper_http::{Original, Refused, RpcId};
use ratekeeper_limiter::{BudgetUse, Waiting};
use ratekeeper_rules::{Domain, Entry, RuleSet};
use ratekeeper_store::Answer;
use tokio::time::Instant;

use crate::asked::original;
use crate::body::ResponseBody;
use crate::hold::Hold;
use crate::observer::{CallerSlot, DenialObserver};
use crate::pacer::Paced;
use crate::shared::Shared;
use crate::shed::{Arrival, ShedContext};
use crate::usage::{RequestUsage, UsageReading};
use crate::waiting_slots::WaitingSlot;
use crate::watch::Watch;
use crate::{
    AdmissionOf, AdmissionVerdict, AnswerOf, EnforceOptions, Enforcer, LayerMode, Payment, Turn,
    Undo,
};

/// The `Retry-After` of a request that is refused for lack of a decision or of room to wait.
const OVERLOADED_RETRY_SECS: u64 = 1;

/// The answer about a request, and its context for the shedders further in.
pub(crate) struct Asked<E: Enforcer> {
    /// None if there was nothing to ask.
    pub(crate) answer: Option<AnswerOf<E>>,
    /// None if no shedder is in use.
    pub(crate) context: Option<ShedContext>,
    /// None if the domain reads no usage.
    pub(crate) usage: Option<RequestUsage>,
}

impl<E: Enforcer> Asked<E> {
    const NOTHING: Self = Self {
        answer: None,
        context: None,
        usage: None,
    };
}

/// The next step of a request.
#[allow(
    clippy::large_enum_variant,
    reason = "a request that is passed on at once must not allocate"
)]
pub(crate) enum Next<E: Enforcer> {
    /// Call the inner service.
    Call(Pass<E::Permit>),
    /// Wait for its turn.
    Wait(Pin<Box<InLine<E::Queued>>>),
    /// Wait for the enforcer's answer.
    Ask(E::Future),
    /// Answer without calling the inner service.
    Refuse(Response<Bytes>),
}

impl<E: Enforcer> Next<E> {
    /// Calls the inner service with no headers to add and no permit to hold.
    pub(crate) const CALL: Self = Self::Call(Pass::NOTHING);
}

pin_project! {
    /// A request that waits for its turn.
    pub(crate) struct InLine<Q> {
        #[pin]
        pub(crate) paced: Paced,
        pub(crate) queued: Option<Q>,
        slot: WaitingSlot,
    }
}

/// A request's permission to pass.
#[derive(Debug)]
pub(crate) struct Pass<P> {
    /// Headers that the response gets, whatever the inner service answers.
    pub(crate) lines: HeaderLines,
    pub(crate) permit: Option<P>,
    pub(crate) undo: Option<Undo>,
    pub(crate) payment: Option<Payment>,
}

impl<P> Pass<P> {
    /// A pass without anything.
    const NOTHING: Self = Self {
        lines: HeaderLines::new(),
        permit: None,
        undo: None,
        payment: None,
    };
}

impl<P: Send + Sync + 'static> Pass<P> {
    /// Shares the permit with `request` and returns what its response still needs.
    pub(crate) fn stamp<B>(self, request: &mut Request<B>, watch: &Watch) -> Stamp {
        let begin = |payment| UsageReading::begin(payment, request, &watch.usage);
        Stamp {
            lines: self.lines,
            undo: self.undo,
            reading: self.payment.and_then(begin),
            held: self.permit.map(|permit| Hold::new(permit, request)),
        }
    }
}

/// The headers and the share of the permit that a response carries.
#[derive(Debug)]
pub(crate) struct Stamp {
    lines: HeaderLines,
    held: Option<Hold>,
    undo: Option<Undo>,
    /// None if no usage is read.
    reading: Option<UsageReading>,
}

impl Stamp {
    /// Ends what was begun for a request that got no response.
    pub(crate) fn failed(self) {
        if let Some(reading) = self.reading {
            reading.failed();
        }
    }

    /// Adds the headers to a response and moves the permit into its body.
    pub(crate) fn on<R: Body>(
        mut self,
        mut response: Response<R>,
    ) -> Response<ResponseBody<R, Hold>> {
        let refusal = response.extensions().get::<Arc<Refusal>>();
        let is_shed = refusal.is_some_and(|refusal| refusal.layer().is_some());
        match self.undo {
            // Its limits are as if it had never come, so it is told nothing about them.
            Some(undo) if is_shed => {
                undo.run();
                if let Some(reading) = self.reading.take() {
                    reading.undone();
                }
            }
            _ => {
                let headers = response.headers_mut();
                for (name, value) in self.lines {
                    headers.insert(name, value);
                }
            }
        }
        if let Some(reading) = &self.reading {
            reading.head(response.status(), response.headers());
        }
        response.map(|body| ResponseBody::inner(body, self.held, self.reading))
    }
}

/// The parts of a request that the form of its refusal depends on.
#[derive(Clone, Copy)]
pub(crate) struct Asker<'a> {
    headers: &'a HeaderMap,
    /// The id of the call, if it is one of JSON-RPC and known.
    call: Option<&'a RpcId>,
}

impl<'a> Asker<'a> {
    pub(crate) fn of<B>(request: &'a Request<B>) -> Self {
        Self {
            headers: request.headers(),
            call: request.extensions().get(),
        }
    }
}

impl<E: Enforcer> Shared<E> {
    /// Asks the enforcer about `request`.
    pub(crate) fn ask<B>(
        &self,
        request: &Request<B>,
        mode: LayerMode,
    ) -> Result<Asked<E>, Refused> {
        if mode == LayerMode::Off {
            return Ok(Asked::NOTHING);
        }
        let peer = (self.peer)(request.extensions());
        let original = original(request, peer, self.scheme, &self.forwarding)?;
        self.enforcer.with_rules(|rules| {
            let context = self.shed_context(&original, request.extensions(), rules);
            let terms = EnforceOptions {
                headers: self.headers,
                wait_max: self.wait_max(original.client),
                may_be_shed: context.is_some(),
            };
            let domain = self.domain(rules);
            if let Some(slot) = request.extensions().get::<CallerSlot>() {
                self.tell_caller(slot, &original, domain, rules);
            }
            let question = self.describer.question(&original, domain, rules)?;
            if question.is_empty() {
                return Ok(Asked {
                    context,
                    ..Asked::NOTHING
                });
            }
            let mut check = question.check();
            check.waiting = Waiting::Within(micros(terms.wait_max));
            let own = request.extensions().get::<RequestUsage>();
            let usage = own
                .cloned()
                .or_else(|| self.usage(question.domain(), rules));
            if let Some(RequestUsage(usage)) = &usage {
                check.budgets = match usage.reserve {
                    0 => BudgetUse::Look,
                    hits => BudgetUse::Reserve(hits),
                };
            }
            check.observer = self
                .check_observer
                .and_then(|find| find(request.extensions()));
            let answer = Some(self.enforcer.ask(&check, terms));
            Ok(Asked {
                answer,
                context,
                usage,
            })
        })
    }

    /// The rules by which usage is read in `domain`, if there are any.
    fn usage(&self, domain: &str, rules: &RuleSet) -> Option<RequestUsage> {
        let own = self.usage.as_ref();
        let usage = own.or_else(|| rules.domain(domain)?.usage())?;
        Some(RequestUsage(Arc::clone(usage)))
    }

    /// Writes the caller of `request` into `slot`.
    fn tell_caller(
        &self,
        slot: &CallerSlot,
        request: &Original<'_>,
        domain: Option<&str>,
        rules: &RuleSet,
    ) {
        let Ok(caller) = self.describer.caller(request, rules) else {
            return;
        };
        let domain = domain.and_then(|domain| rules.domain(domain));
        let is_secret =
            caller.is_secret || domain.is_some_and(|domain| domain.is_secret(caller.key));
        let key = caller.key;
        slot.set(match is_secret {
            true => format!("{key}:{}", self.enforcer.fingerprint(&caller.name)),
            false => format!("{key}:{}", caller.name),
        });
    }

    /// The class and the tenant of `request`, if the rules have shedders.
    fn shed_context(
        &self,
        request: &Original<'_>,
        extensions: &Extensions,
        rules: &RuleSet,
    ) -> Option<ShedContext> {
        // Most rules have none, and a second look at them is saved.
        rules.shed()?;
        let shed = self.enforcer.shed_rules()?;
        if !shed.is_in_use() {
            return None;
        }
        let caller = self.describer.caller(request, rules).ok();
        let name = caller.as_ref().map(|caller| (caller.key, &*caller.name));
        let shared = name.and_then(|(key, name)| self.enforcer.tenant_hash(key, name));
        let tenant = shared.unwrap_or_else(|| self.hasher.hash_one(name));
        let plan = caller
            .as_ref()
            .filter(|_| shed.goes_by_plan())
            .and_then(|caller| {
                let value = &*caller.name;
                let key = caller.key;
                self.plan(rules, Entry { key, value })
            });
        let arrival = Arrival::of(extensions);
        Some(ShedContext::new(shed, request, arrival, tenant, plan))
    }

    /// The plan of the tenant that `caller` names, if the domain has plans.
    fn plan<'a>(&self, rules: &'a RuleSet, caller: Entry<'_>) -> Option<&'a str> {
        let domain = rules.domain(self.domain(rules)?)?;
        domain.plan_of(caller, self.enforcer.now())
    }

    /// The domain whose rules apply. If several could, it still picks one: a reload must not switch limits off.
    fn domain<'a>(&'a self, rules: &'a RuleSet) -> Option<&'a str> {
        match self.describer.domain(None, rules) {
            Ok(domain) => domain.or(self.domain.as_deref()),
            Err(_) => {
                let own = self.domain.as_deref().and_then(|own| rules.domain(own));
                let chosen = own.or_else(|| rules.domains().next()).map(Domain::name);
                self.watch.unclear(chosen);
                chosen
            }
        }
    }

    /// The longest time that a new request of `client` may wait: zero while no slot is free for it, so that it does
    /// not take a turn that it could not wait for. If the last slot is taken meanwhile, [`Self::wait`] refuses it.
    fn wait_max(&self, client: Option<IpAddr>) -> Duration {
        match self.watch.slots.has_room(client, self.waiting_max) {
            true => self.wait_max,
            false => Duration::ZERO,
        }
    }

    /// Returns the next step for `request` after the enforcer's answer.
    pub(crate) fn next<B>(
        &self,
        asked: AnswerOf<E>,
        mode: LayerMode,
        request: &Request<B>,
    ) -> Next<E> {
        match asked {
            Answer::Decided(admission) => self.admitted(admission, mode, request),
            Answer::Pending(asking) => Next::Ask(asking),
        }
    }

    /// Asks again about a request whose turn has come.
    pub(crate) fn at_turn<B>(
        &self,
        queued: E::Queued,
        mode: LayerMode,
        request: &Request<B>,
    ) -> Next<E> {
        self.next(self.enforcer.at_turn(queued), mode, request)
    }

    /// Returns the next step for `request` after a decision.
    pub(crate) fn admitted<B>(
        &self,
        admission: AdmissionOf<E>,
        mode: LayerMode,
        request: &Request<B>,
    ) -> Next<E> {
        let asker = Asker::of(request);
        if admission.degraded {
            self.watch.degraded();
        }
        let (lines, undo, payment) = (admission.headers, admission.undo, admission.payment);
        match (admission.verdict, mode) {
            (AdmissionVerdict::Pass(permit), LayerMode::Off | LayerMode::Shadow) => {
                Next::Call(Pass {
                    lines: HeaderLines::new(),
                    permit,
                    undo,
                    payment,
                })
            }
            (AdmissionVerdict::Pass(permit), LayerMode::On) => Next::Call(Pass {
                lines,
                permit,
                undo,
                payment,
            }),
            (AdmissionVerdict::Wait(turn, queued), LayerMode::On) if !turn.after.is_zero() => {
                self.wait(turn, queued, request)
            }
            (AdmissionVerdict::Wait(_, queued), _) => self.at_turn(queued, mode, request),
            (AdmissionVerdict::Deny(denial), LayerMode::On) => {
                self.denied(&denial, true, request);
                self.refuse(Refusal::Denied(denial), lines, asker)
            }
            (AdmissionVerdict::Deny(denial), LayerMode::Off | LayerMode::Shadow) => {
                self.denied(&denial, false, request);
                Next::Call(Pass {
                    payment,
                    ..Pass::NOTHING
                })
            }
            (AdmissionVerdict::Unavailable, LayerMode::On) => {
                self.overloaded("the rate limiter is unavailable", asker)
            }
            (AdmissionVerdict::Unavailable, LayerMode::Off | LayerMode::Shadow) => Next::CALL,
        }
    }

    fn denied<B>(&self, denial: &Denial, is_enforced: bool, request: &Request<B>) {
        self.watch.count_denied(is_enforced);
        match &self.observer {
            Some(DenialObserver(tell)) => {
                tell(HttpDenial::new(denial, is_enforced, request));
            }
            None => self.watch.log_denied(denial, is_enforced, request),
        }
    }

    fn wait<B>(&self, turn: Turn, queued: E::Queued, request: &Request<B>) -> Next<E> {
        let slots = &self.watch.slots;
        let client = self.client(request);
        let Some(slot) = slots.take(client, turn.rule, self.waiting_max) else {
            return self.overloaded("too many delayed requests", Asker::of(request));
        };
        self.watch.waited();
        // Counted from now, so that delays in this process do not add up along the line.
        let at = Instant::now() + turn.after;
        Next::Wait(Box::pin(InLine {
            paced: Paced::new(&self.pacer, turn.bucket, at, turn.span),
            queued: Some(queued),
            slot,
        }))
    }

    /// The address of the client that sent `request`. Derived again because few requests wait.
    fn client<B>(&self, request: &Request<B>) -> Option<IpAddr> {
        let peer = (self.peer)(request.extensions())?;
        self.forwarding
            .client(peer, request.headers())
            .ok()
            .flatten()
    }

    /// Refuses a request that is ambiguous or whose token is invalid.
    pub(crate) fn malformed(&self, refused: Refused, mode: LayerMode, asker: Asker<'_>) -> Next<E> {
        self.watch.malformed(&refused);
        let refusal = match refused {
            Refused::Malformed(malformed) => Refusal::Malformed(malformed),
            Refused::Unauthenticated(why) => Refusal::Unauthenticated(why),
        };
        match mode {
            LayerMode::On => self.refuse(refusal, HeaderLines::new(), asker),
            LayerMode::Off | LayerMode::Shadow => Next::CALL,
        }
    }

    fn overloaded(&self, message: &'static str, asker: Asker<'_>) -> Next<E> {
        self.watch.overloaded(message);
        let refusal = Refusal::Overloaded {
            message,
            retry_after: OVERLOADED_RETRY_SECS,
        };
        self.refuse(refusal, HeaderLines::new(), asker)
    }

    fn refuse(&self, refusal: Refusal, lines: HeaderLines, asker: Asker<'_>) -> Next<E> {
        let form = Form::wanted(asker.headers, self.body_form).about(asker.call);
        let mut response = refusal.response(&form, lines);
        // For loggers: the response does not show everything.
        response.extensions_mut().insert(Arc::new(refusal));
        Next::Refuse(response)
    }
}

fn micros(span: Duration) -> Micros {
    Micros::new(u64::try_from(span.as_micros()).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests;
