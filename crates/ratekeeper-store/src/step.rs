//! What a store is asked and what it answers.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use ratekeeper_core::{Bounds, Limit, Mode, Moment, Outcome, Timestamp, Verdict, Vote};
use smallvec::SmallVec;

use crate::{Execution, Extra, HashKey, StoreError};

/// The name of a counter: 128 seeded bits, however long its descriptor is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct CounterKey {
    /// Keyed hash of the domain and the subject: one subject's counters lie together.
    pub subject: u64,
    /// Keyed hash of the whole identity of the counter.
    pub identity: u64,
}

/// A small number for each rule, stable while the process runs, so that a store can
/// bound how much of it one rule takes. The largest one, 65,535, is the store's own: it
/// stands for counters whose rule is not known.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct RuleSlot(pub u16);

/// When a counter is charged.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Charge {
    /// If the request is allowed and this counter itself fitted.
    #[default]
    IfAllowed,
    /// In any case, also when the request is denied (`count_denied`).
    Always,
}

/// What a step answers when the store has no room for a new counter of its rule.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum FullMode {
    /// As if it fitted, uncounted.
    #[default]
    Allow,
    /// As if it did not fit.
    Deny,
}

/// Which of several stores keeps a counter; the default one unless a rule names another.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct StoreSlot(pub u8);

/// One counter to test and perhaps to charge.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Step {
    /// Which counter.
    pub key: CounterKey,
    /// What it is held against: a copy, so that a step can outlive the rules it came from.
    pub limit: Limit,
    /// The window's edges, where they follow a calendar.
    pub calendar: Option<Bounds>,
    /// What the request costs: 0 looks only, negative gives back. At most 2^53 - 1 either way.
    pub hits: i64,
    /// When it is charged.
    pub charge: Charge,
    /// Which of the request's descriptors it belongs to; never decreases from step to step.
    pub descriptor: u16,
    /// Counted, but never a reason to deny.
    pub shadow: bool,
    /// Denies only together with every other quota-mode descriptor.
    pub quota_mode: bool,
    /// The store that keeps the counter, for who has several.
    pub store: StoreSlot,
    /// The rule, for the bound on its share of the store.
    pub rule: RuleSlot,
    /// The answer when there is no room for it.
    pub full_mode: FullMode,
}

impl Step {
    /// One hit on the counter of `key`, enforced and charged if the request is allowed.
    #[must_use]
    pub const fn new(key: CounterKey, limit: Limit) -> Self {
        Self {
            key,
            limit,
            calendar: None,
            hits: 1,
            charge: Charge::IfAllowed,
            descriptor: 0,
            shadow: false,
            quota_mode: false,
            store: StoreSlot(0),
            rule: RuleSlot(0),
            full_mode: FullMode::Allow,
        }
    }

    /// Its say in the combined answer.
    #[must_use]
    pub fn vote(&self, fits: bool) -> Vote {
        Vote {
            fits,
            descriptor: self.descriptor,
            shadow: self.shadow,
            quota_mode: self.quota_mode,
        }
    }

    /// What `combine` answers if this step is all there is.
    #[inline]
    pub(crate) fn decides_alone(&self, fits: bool, mode: Mode) -> bool {
        let passes = fits || self.shadow || (self.quota_mode && mode.idle_quota);
        mode.shadow || (passes && !mode.denied)
    }

    /// Whether it denies the request if nobody answers it.
    pub(crate) fn denies_without_answer(&self) -> bool {
        self.full_mode == FullMode::Deny && !self.shadow && !self.quota_mode
    }

    /// The step, without its hits if it gives back what was taken at `taken_at` and does not
    /// count any more.
    pub(crate) fn as_of(&self, taken_at: Timestamp, now: Timestamp) -> Self {
        let at = Moment {
            now,
            calendar: self.calendar,
        };
        let is_gone = self.hits < 0 && !self.limit.still_counts(taken_at, &at);
        Self {
            hits: if is_gone { 0 } else { self.hits },
            ..*self
        }
    }

    /// What its counter is charged, given whether it fitted and whether the request is allowed.
    #[inline]
    pub(crate) fn charged(&self, fits: bool, allowed: bool) -> i64 {
        let always = self.hits < 0 || self.charge == Charge::Always;
        if always || (fits && allowed) {
            self.hits
        } else {
            0
        }
    }
}

/// The steps of one request, to be decided together.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// In the order of the request's descriptors.
    pub steps: &'a [Step],
    /// What else bears on the combined answer.
    pub mode: Mode,
    /// When. A store's time never goes back: an earlier one counts as the latest it has seen.
    pub now: Timestamp,
    /// What it wants besides; None for a plain check.
    pub extra: Option<&'a Extra>,
    /// The secret that its counters were named by: a store that nodes share decides nothing that
    /// was named by another one than theirs. None for who names counters in some other way, the
    /// same on all nodes.
    pub named_by: Option<HashKey>,
}

impl<'a> Request<'a> {
    /// A plain check.
    #[must_use]
    pub const fn new(steps: &'a [Step], mode: Mode, now: Timestamp) -> Self {
        Self {
            steps,
            mode,
            now,
            extra: None,
            named_by: None,
        }
    }
}

/// What one step answered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StepOutcome {
    /// The counter was tested.
    Counted(Outcome),
    /// A counter of this node alone was tested, since the store could not answer. No store
    /// answers so; who asks it does.
    Aside(Outcome),
    /// The store had no room for the counter; its [`FullMode`] answered.
    Full(FullMode),
    /// Where the counter lives gave no answer, though other places of the request did: no reason
    /// to deny until whoever asked says what it means.
    Unanswered(StoreError),
}

impl StepOutcome {
    /// Whether somebody has answered the step.
    #[must_use]
    pub const fn is_answered(&self) -> bool {
        !matches!(self, Self::Unanswered(_))
    }

    /// Whether the step is no reason to deny.
    #[must_use]
    pub fn fits(&self) -> bool {
        match self {
            Self::Counted(outcome) | Self::Aside(outcome) => outcome.verdict == Verdict::Fits,
            Self::Full(mode) => *mode == FullMode::Allow,
            Self::Unanswered(_) => true,
        }
    }
}

/// What a store answers to a request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Verdicts {
    /// The combined answer; a denied request has charged nothing but `Charge::Always`.
    pub allowed: bool,
    /// One for each step, in the same order.
    pub outcomes: SmallVec<[StepOutcome; 4]>,
    /// The store's time of the decision: that of the request, or the latest the store has seen.
    pub at: Timestamp,
    /// Whether this is the answer to a request carried out now, before, or not at all. Always
    /// [`Execution::Now`] unless the request is to be carried out [once](crate::Once).
    pub execution: Execution,
}

impl Verdicts {
    /// Why steps have no answer, if some have [none](StepOutcome::Unanswered).
    #[must_use]
    pub fn fault(&self) -> Option<StoreError> {
        self.outcomes.iter().find_map(|outcome| match outcome {
            StepOutcome::Unanswered(error) => Some(*error),
            _ => None,
        })
    }

    /// The answer to a request of one step.
    #[inline]
    pub(crate) fn one(allowed: bool, outcome: StepOutcome, at: Timestamp) -> Self {
        let mut outcomes = SmallVec::new();
        outcomes.push(outcome);
        Self {
            allowed,
            outcomes,
            at,
            execution: Execution::Now,
        }
    }
}

/// An answer that is there at once, or has to be waited for: from the store, which decides steps,
/// to the edges, which admit requests.
#[allow(
    clippy::large_enum_variant,
    reason = "a decision is handed over without allocating"
)]
#[derive(Debug)]
pub enum Answer<P, D = Verdicts> {
    /// Decided at once.
    Decided(D),
    /// Decided elsewhere: this is to be awaited.
    Pending(P),
}

impl<P, D> Answer<P, D> {
    /// The same answer, with something else to wait for.
    #[inline]
    pub fn map_pending<Q>(self, wrap: impl FnOnce(P) -> Q) -> Answer<Q, D> {
        match self {
            Self::Decided(decided) => Answer::Decided(decided),
            Self::Pending(pending) => Answer::Pending(wrap(pending)),
        }
    }
}

/// The ticket of stores that always decide at once: there is none.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Never {}

impl Future for Never {
    type Output = Result<Verdicts, StoreError>;

    fn poll(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Self::Output> {
        match *self {}
    }
}

#[cfg(test)]
mod tests {
    use ratekeeper_core::{Algorithm, LimitSpec, Micros, combine};

    use super::*;

    #[test]
    fn a_step_alone_is_combined_like_any_other() {
        let spec = LimitSpec::new(Algorithm::Gcra, 1, Micros::from_secs(1));
        let limit = Limit::try_new(spec).unwrap();
        for bits in 0..64 {
            let [fits, shadow, quota_mode, all_shadow, idle_quota, denied] =
                [1, 2, 4, 8, 16, 32].map(|bit| bits & bit != 0);
            let key = CounterKey {
                subject: 0,
                identity: 0,
            };
            let step = Step {
                shadow,
                quota_mode,
                ..Step::new(key, limit)
            };
            let mode = Mode {
                shadow: all_shadow,
                idle_quota,
                denied,
            };
            let combined = combine([step.vote(fits)], mode);
            assert_eq!(
                step.decides_alone(fits, mode),
                combined,
                "{step:?} {mode:?}"
            );
        }
    }
}
