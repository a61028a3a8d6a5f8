//! Decisions, as both codecs report them.

use ratekeeper_core::{Micros, Timestamp, Verdict};
use ratekeeper_limiter::{Binding, Check, Code, Decision, Policy, Status};

use super::standing::StandingAnswer;

/// A decision. Times are whole milliseconds, rounded up.
#[derive(Debug)]
pub(crate) struct Answer<'a> {
    /// None if nothing was decided, because the request cannot be read.
    decision: Option<&'a Decision>,
    /// The reason for that; otherwise none.
    pub(crate) unreadable: Option<&'a str>,
    /// True if the request may pass, or, after a peek, if one hit would.
    pub(crate) allowed: bool,
    /// The most restrictive limit; none if no enforced limit matched.
    pub(crate) limit: Option<LimitAnswer<'a>>,
    /// Present if the request asked for it.
    pub(crate) standing: Option<StandingAnswer<'a>>,
}

/// A limit and its state.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LimitAnswer<'a> {
    /// The id of its rule; none if the request brought the limit along.
    pub(crate) rule: Option<&'a str>,
    pub(crate) limit: u64,
    pub(crate) remaining: u64,
    /// Time until there is more than `remaining`; on a denial, until the same hits would pass.
    pub(crate) reset_after_ms: u64,
    /// Time until the full limit is available again.
    pub(crate) full_after_ms: u64,
    /// Time until the same hits would pass; after a peek, until one hit would. None if now or never.
    pub(crate) retry_after_ms: Option<u64>,
}

/// The result of one descriptor.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StatusAnswer<'a> {
    pub(crate) allowed: bool,
    /// The most restrictive of its limits; none if none matched.
    pub(crate) limit: Option<LimitAnswer<'a>>,
    /// The id of the `unlimited` rule, if that is the one that matched.
    pub(crate) unlimited_rule: Option<&'a str>,
    pub(crate) delay_ms: Option<u64>,
}

/// A decision, and the permit or reservation that came with it.
#[derive(Debug)]
pub(crate) struct HeldAnswer<'a> {
    pub(crate) answer: Answer<'a>,
    /// The token of what is held; none if nothing is.
    pub(crate) token: Option<&'a str>,
    pub(crate) expires_after_ms: Option<u64>,
    /// True if the idempotency key was used before, and this is the earlier answer.
    pub(crate) repeated_before: bool,
}

impl<'a> Answer<'a> {
    /// The answer to a request that charged. If it passed, it has no `retry_after_ms`, though one of
    /// its limits may be exceeded without denying it (quota mode).
    pub(super) fn charged(decision: &'a Decision) -> Self {
        let allowed = decision.allowed();
        let mut answer = Self::peeked(decision, allowed);
        if let Some(limit) = &mut answer.limit
            && allowed
        {
            limit.retry_after_ms = None;
        }
        answer
    }

    /// The answer to a request that charged nothing, and to one more hit.
    pub(super) fn peeked(decision: &'a Decision, allowed: bool) -> Self {
        let binding = decision.binding();
        Self {
            decision: Some(decision),
            unreadable: None,
            allowed,
            limit: binding.map(|binding| LimitAnswer::new(decision, binding)),
            standing: None,
        }
    }

    /// Adds the standing of `check` against `policies`, as decided at the time `at`.
    pub(super) fn with_standing(
        self,
        policies: &[Policy],
        check: &Check<'_>,
        at: Timestamp,
    ) -> Self {
        let standing = |decision| StandingAnswer::new(policies, decision, check, at);
        Self {
            standing: self.decision.map(standing),
            ..self
        }
    }

    /// The answer to a request that cannot be read, and why not.
    pub(super) const fn unreadable(allowed: bool, why: &'a str) -> Self {
        Self {
            decision: None,
            unreadable: Some(why),
            allowed,
            limit: None,
            standing: None,
        }
    }

    /// The time to delay the request before it proceeds (leaky buckets).
    pub(crate) fn delay_ms(&self) -> Option<u64> {
        millis(self.decision?.delay())
    }

    /// Returns true if a limit was answered without being counted.
    pub(crate) fn is_degraded(&self) -> bool {
        self.decision.is_some_and(Decision::is_degraded)
    }

    /// Returns true if no limit matched any descriptor.
    pub(crate) fn is_unmatched(&self) -> bool {
        self.decision.is_some_and(Decision::is_unmatched)
    }

    /// The results of the descriptors, in their order.
    pub(crate) fn statuses(&self) -> impl Iterator<Item = StatusAnswer<'a>> + use<'a> {
        let statuses = |decision: &'a Decision| {
            let statuses = decision.statuses().iter();
            statuses.map(move |status| StatusAnswer::new(decision, status))
        };
        self.decision.into_iter().flat_map(statuses)
    }
}

impl<'a> HeldAnswer<'a> {
    /// The answer to a request that cannot be read: nothing is held.
    pub(super) const fn unreadable(allowed: bool, why: &'a str) -> Self {
        Self {
            answer: Answer::unreadable(allowed, why),
            token: None,
            expires_after_ms: None,
            repeated_before: false,
        }
    }
}

impl<'a> StatusAnswer<'a> {
    fn new(decision: &'a Decision, status: &'a Status) -> Self {
        let binding = status.binding.as_ref();
        let rules = decision.snapshot().rules();
        Self {
            allowed: status.code == Code::Ok,
            limit: binding.map(|binding| LimitAnswer::new(decision, binding)),
            unlimited_rule: status.unlimited.map(|index| &*rules.rule(index).id),
            delay_ms: millis(status.delay),
        }
    }
}

impl<'a> LimitAnswer<'a> {
    fn new(decision: &'a Decision, binding: &'a Binding) -> Self {
        let answered = &binding.answered;
        Self {
            rule: decision.rule(binding).map(|rule| &*rule.id),
            limit: binding.ceiling,
            remaining: answered.remaining,
            reset_after_ms: answered.reset_after.as_millis_ceil(),
            full_after_ms: answered.full_after.as_millis_ceil(),
            retry_after_ms: match answered.verdict {
                Verdict::Never => None,
                Verdict::Fits | Verdict::Later => millis(answered.retry_after),
            },
        }
    }
}

/// None if there is nothing to wait for, or no wait helps.
fn millis(span: Micros) -> Option<u64> {
    (span > Micros::ZERO && span < Micros::MAX).then(|| span.as_millis_ceil())
}
