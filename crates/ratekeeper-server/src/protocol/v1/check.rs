//! Checks, one or many, peeks and explanations.

use std::time::Instant;

use ratekeeper_core::Timestamp;
use ratekeeper_limiter::{Explanation, Ruling, Waiting};
use ratekeeper_store::Answer::Decided;
use ratekeeper_trace::TracedMethod;

use super::hold::bounded;
use super::round::Round;
use super::unmatched::{RuleNames, Unmatched, refuse_unmatched};
use super::{
    Api, CheckAnswer, CheckRequest, Object, Reason, Refusal, Sender, Subject, require_rules,
};
use crate::access::callers::Power;
use crate::app::App;
use crate::app::long_answers::AnswerRoom;
use crate::logs::unreadable::Defect;

/// The most checks in one message or body.
pub(crate) const CHECKS_MAX: usize = 1_000;

/// The answers to many checks, in their order.
#[derive(Debug)]
pub(crate) struct Batch<R> {
    pub(crate) results: Vec<R>,
    pub(crate) room: AnswerRoom,
}

impl<C: Sender> Api<'_, C> {
    /// Decides one check; `read` turns the answer into a message in place.
    pub(crate) async fn check<R>(
        &self,
        request: &CheckRequest<'_>,
        unmatched: Unmatched,
        read: impl Fn(&CheckAnswer<'_>) -> R,
    ) -> Result<R, C::Error> {
        let subject = Subject::from(request);
        if let Err(refusal) = subject.validate(format_args!("")) {
            return Ok(unread(self.app, refusal, |answer| read(&answer))?);
        }
        self.permit_override(subject)?;
        require_rules(self.app, subject.domains())?;
        let limiter = &self.app.limiter;
        if unmatched == Unmatched::Refused {
            let check = subject.check(1);
            refuse_unmatched(limiter.snapshot().rules(), &check, self.rule_names())?;
        }
        if !request.idempotency_key.is_empty() {
            return self.check_once(request, read).await;
        }
        let check = subject.check(1);
        let now = limiter.clock().now();
        let read = |ruling: &Ruling<'_>| read(&answer(request, ruling, now));
        let origin = self.sender.origin();
        Ok(self.app.check(check, now, origin, read).await)
    }

    /// Decides one check, once under its key.
    #[inline(never)] // Few checks have one, and the others need none of its state.
    async fn check_once<R>(
        &self,
        request: &CheckRequest<'_>,
        read: impl Fn(&CheckAnswer<'_>) -> R,
    ) -> Result<R, C::Error> {
        let subject = Subject::from(request);
        let name = self.sender.permit(Power::Hold)?;
        subject.refuse_overrides_beside_key()?;
        if request.standing {
            let message = "a check with an `idempotency_key` has none; leave it out";
            return Err(Refusal::invalid("standing", message).into());
        }
        let key = bounded(&request.idempotency_key)?;
        let origin = self.sender.origin();
        let mut check = subject.check(1);
        check.observer = self.app.observer(TracedMethod::Check, origin);
        let (now, start) = (self.app.limiter.clock().now(), Instant::now());
        let charged = self.app.limiter.caller(name).charge(&check, key).await;
        self.app.durations.add(start.elapsed());
        let charged = charged.map_err(Refusal::of_hold("idempotency_key"))?;
        let decision = &charged.decision;
        if !charged.is_repeat {
            (self.app).record(decision, check.descriptors(), origin, now);
        }
        Ok(read(&CheckAnswer::charged(decision)))
    }

    /// Decides up to a thousand checks, each by itself; none if one of them is malformed. Asks all of
    /// them before it waits for any; `read` turns an immediate answer into a message in place.
    pub(crate) async fn check_all<R>(
        &self,
        requests: &[Object<CheckRequest<'_>>],
        mut read: impl FnMut(&CheckRequest<'_>, &CheckAnswer<'_>) -> R,
    ) -> Result<Batch<R>, C::Error> {
        let mut unreadable = self.validate_all(requests)?.into_iter().peekable();
        require_rules(self.app, [])?;
        let descriptors = requests.iter().map(|request| request.0.descriptors.len());
        let room = self.app.long_answers.room(descriptors.sum());
        let room = room.map_err(Refusal::from)?;
        let round = Round::begin(self.app, self.sender.origin());
        let now = round.now;
        let asked = requests.iter().enumerate().map(|(number, request)| {
            if let Some((_, allowed, why)) = unreadable.next_if(|(at, ..)| *at == number) {
                return Decided(read(request, &CheckAnswer::unreadable(allowed, &why)));
            }
            let subject = Subject::from(&request.0);
            if let Err(lack) = self.app.require_rules(subject.domains()) {
                return Decided(read(request, &CheckAnswer::undecided(&lack.to_string())));
            }
            let mut check = subject.check(1);
            round.ask(&mut check, |ruling| {
                read(request, &answer(request, ruling, now))
            })
        });
        let asked: Vec<_> = asked.collect();
        let read = |request: &Object<CheckRequest<'_>>, ruling: &Ruling<'_>| {
            read(request, &answer(request, ruling, now))
        };
        let results = round.end(requests.iter().zip(asked), read).await;
        Ok(Batch { results, room })
    }

    /// Refuses a batch with a malformed request, and returns the answers to those that cannot be read: their numbers,
    /// whether they may pass, and why.
    fn validate_all(
        &self,
        requests: &[Object<CheckRequest<'_>>],
    ) -> Result<Vec<(usize, bool, String)>, C::Error> {
        let mut unreadable = Vec::new();
        if requests.is_empty() || requests.len() > CHECKS_MAX {
            let message = format!("expected 1 to {CHECKS_MAX} checks");
            return Err(Refusal::invalid("checks", message).into());
        }
        let subjects = || requests.iter().map(|request| Subject::from(&request.0));
        for (number, subject) in subjects().enumerate() {
            if let Err(refusal) = subject.validate(format_args!("checks[{number}].")) {
                let (allowed, why) = judge(self.app, refusal)?;
                unreadable.push((number, allowed, why));
            }
        }
        let has_key = |request: &Object<CheckRequest<'_>>| !request.0.idempotency_key.is_empty();
        if let Some(number) = requests.iter().position(has_key) {
            let message = "a check with a key is sent alone";
            let field = format!("checks[{number}].idempotency_key");
            return Err(Refusal::invalid(field, message).into());
        }
        if let Some(subject) = subjects().find(Subject::has_override) {
            self.permit_override(subject)?;
        }
        Ok(unreadable)
    }

    /// Reads the state of a request's limits. Charges nothing.
    pub(crate) async fn peek<R>(
        &self,
        subject: Subject<'_>,
        read: impl FnOnce(&CheckAnswer<'_>) -> R,
    ) -> Result<R, C::Error> {
        if let Err(refusal) = subject.validate(format_args!("")) {
            return Ok(unread(self.app, refusal, |answer| read(&answer))?);
        }
        self.permit_override(subject)?;
        require_rules(self.app, subject.domains())?;
        let mut check = subject.check(0);
        check.observer = (self.app).observer(TracedMethod::Peek, self.sender.origin());
        let (decision, would_allow) = self.app.limiter.peek(&check).await;
        Ok(read(&CheckAnswer::peeked(&decision, would_allow)))
    }

    /// Explains how a check would be decided. Charges nothing.
    pub(crate) async fn explain(&self, subject: Subject<'_>) -> Result<Explanation, C::Error> {
        subject.validate(format_args!(""))?;
        let mut check = subject.check(1);
        // As most edges ask: without a caller that could be made to wait.
        check.waiting = Waiting::Cannot;
        Ok(self.app.explain(&check).await)
    }

    /// Checks that the sender may bring limits along, if the request does.
    fn permit_override(&self, subject: Subject<'_>) -> Result<(), C::Error> {
        match subject.has_override() {
            true => self.sender.permit(Power::Override).map(drop),
            false => Ok(()),
        }
    }

    /// Callers with a permission and this host may see names of rules.
    fn rule_names(&self) -> RuleNames {
        match self.sender.permit(Power::Override) {
            Ok(_) => RuleNames::Shown,
            Err(_) => RuleNames::Hidden,
        }
    }
}

/// Answers a request that was refused, if its own sender may have caused that; `read` turns the answer into a message.
#[cold]
pub(super) fn unread<R>(
    app: &App,
    refusal: Refusal,
    read: impl FnOnce(CheckAnswer<'_>) -> R,
) -> Result<R, Refusal> {
    let (allowed, why) = judge(app, refusal)?;
    Ok(read(CheckAnswer::unreadable(allowed, &why)))
}

/// Returns whether such a request may pass, and why it cannot be read.
pub(super) fn judge(app: &App, refusal: Refusal) -> Result<(bool, String), Refusal> {
    if refusal.reason != Reason::OutOfBounds {
        return Err(refusal);
    }
    let why = refusal.sentence();
    match app.unreadable.judge("v1", Defect::OutOfBounds, &why) {
        Some(allowed) => Ok((allowed, why.into_owned())),
        None => Err(refusal),
    }
}

/// The answer to `request`, decided `at` a time.
fn answer<'a>(request: &CheckRequest<'_>, ruling: &Ruling<'a>, at: Timestamp) -> CheckAnswer<'a> {
    let subject = Subject::from(request);
    let decision = ruling.decision;
    let answer = match subject.is_peek() {
        true => CheckAnswer::peeked(decision, decision.allowed()),
        false => CheckAnswer::charged(decision),
    };
    if !request.standing {
        return answer;
    }
    answer.with_limits(&ruling.policies(), ruling.descriptors, at)
}
