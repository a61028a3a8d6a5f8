//! The requests to a store and its answers.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use ratekeeper_core::region::counted::Counted;
use ratekeeper_core::{
    Bounds, Limit, Micros, Mode, Moment, Outcome, Timestamp, Verdict, Vote, Whole,
};
use smallvec::SmallVec;

use crate::{Execution, Extra, HashKey, StoreError};

/// The name of a counter: 128 keyed hash bits, however long its descriptor is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct CounterKey {
    /// Keyed hash of the domain and the subject: the counters of a subject stay together.
    pub subject: u64,
    /// Keyed hash of the counter's whole identity.
    pub identity: u64,
}

/// A small number for each rule, stable while the process runs, with which a store can bound the
/// share of a rule. The largest, 65,535, is reserved for the store: it stands for counters whose
/// rule is not known.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct RuleSlot(pub u16);

/// The condition for charging a counter.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Charge {
    /// The request is allowed and this counter fitted.
    #[default]
    IfAllowed,
    /// Always, also for denied requests (`count_denied`).
    Always,
}

/// The answer of a step when the store has no room for a new counter of its rule.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum FullMode {
    /// Fits, without being counted.
    #[default]
    Allow,
    /// Does not fit.
    Deny,
}

/// The store that keeps a counter, of several; the default one unless a rule names another.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct StoreSlot(pub u8);

/// A counter to test, and to charge if the request is allowed.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Step {
    /// The name of the counter.
    pub key: CounterKey,
    /// The limit: a copy, so that a step can outlive its rules.
    pub limit: Limit,
    /// The window's edges, if they follow a calendar.
    pub calendar: Option<Bounds>,
    /// The cost: 0 only looks, negative gives back. At most 2^53 - 1 either way.
    pub hits: i64,
    /// The condition for charging it.
    pub charge: Charge,
    /// The index of its descriptor in the request; never decreases from step to step.
    pub descriptor: u16,
    /// Counts, but never denies.
    pub shadow: bool,
    /// Denies only if every other quota-mode descriptor is over its limit too.
    pub quota_mode: bool,
    /// The store that keeps the counter, if there are several.
    pub store: StoreSlot,
    /// The rule, whose share of the store is bounded.
    pub rule: RuleSlot,
    /// The answer when there is no room for it.
    pub full_mode: FullMode,
    /// The time of the counter's leases, from which nodes admit hits without asking; zero if there are none.
    /// It is that of [`Terms`](ratekeeper_core::lease::Terms).
    pub lease: Micros,
    /// The time after which this node adds its hits to the counter in the store, and admits without asking in between; zero
    /// if each hit is counted there.
    pub sync: Micros,
    /// The terms on which regions lend each other parts of the limit, or count it together: a number that differs where the
    /// limit, its rule or the regions do; 0 if they do not. The step's limit is then what this region owns, or the whole one.
    pub terms: u64,
    /// The whole limit of which regions lend each other parts.
    pub whole: Whole,
    /// The way in which regions count the limit together; [`None`] if they do not.
    pub counted: Option<Counted>,
}

impl Step {
    /// A step of one hit on the counter of `key`, enforced, and charged if the request is allowed.
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
            lease: Micros::ZERO,
            sync: Micros::ZERO,
            terms: 0,
            whole: Whole { quota: 0, burst: 0 },
            counted: None,
        }
    }

    /// Its vote in the combined answer.
    #[must_use]
    pub fn vote(&self, fits: bool) -> Vote {
        Vote {
            fits,
            descriptor: self.descriptor,
            shadow: self.shadow,
            quota_mode: self.quota_mode,
        }
    }

    /// The combined answer if this is the only step.
    #[inline]
    pub(crate) fn decides_alone(&self, fits: bool, mode: Mode) -> bool {
        let passes = fits || self.shadow || (self.quota_mode && mode.idle_quota);
        mode.shadow || (passes && !mode.denied)
    }

    /// Returns true if the step denies the request when it has no answer.
    pub(crate) fn denies_without_answer(&self) -> bool {
        self.full_mode == FullMode::Deny && !self.shadow && !self.quota_mode
    }

    /// The step, but without its hits if it gives back hits taken at `taken_at` that no longer
    /// count.
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

    /// Returns true if it is charged whatever the answer, since its hits were used already.
    #[must_use]
    pub fn is_paid(&self) -> bool {
        self.hits > 0 && self.charge == Charge::Always && self.limit.is_post_paid()
    }

    /// The hits to charge; `passes` is true if the step fits and the request is allowed.
    #[inline]
    pub(crate) fn charged(&self, passes: bool) -> i64 {
        let always = self.hits < 0 || self.charge == Charge::Always;
        if always || passes { self.hits } else { 0 }
    }
}

/// The steps of one request, to be decided together.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// The steps, in the order of the request's descriptors.
    pub steps: &'a [Step],
    /// Further inputs of the combined answer.
    pub mode: Mode,
    /// The time. A store's time never goes back: an earlier time counts as the latest it has seen.
    pub now: Timestamp,
    /// Options; None for a plain check.
    pub extra: Option<&'a Extra>,
    /// The hash key with which its counters were named: a store shared by nodes refuses a request
    /// with another key than its own. None for callers that name counters in another way, the same
    /// on all nodes.
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

/// The outcome of one step.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StepOutcome {
    /// The counter was tested.
    Counted(Outcome),
    /// A counter of this node was tested, because the store was unavailable. Stores never return
    /// this; their callers do.
    OnThisNode(Outcome),
    /// Admitted from a lease: the hits had been held before, and nothing gives them back.
    Leased(Outcome),
    /// The store had no room for the counter; its [`FullMode`] answered.
    Full(FullMode),
    /// The counter's place did not answer, though other places of the request did: does not deny
    /// until the caller decides what it means.
    Unanswered(StoreError),
}

impl StepOutcome {
    /// Returns true if the step has an answer.
    #[must_use]
    pub const fn is_answered(&self) -> bool {
        !matches!(self, Self::Unanswered(_))
    }

    /// Returns true if the step does not deny.
    #[must_use]
    pub fn fits(&self) -> bool {
        match self {
            Self::Counted(outcome) | Self::OnThisNode(outcome) | Self::Leased(outcome) => {
                outcome.verdict == Verdict::Fits
            }
            Self::Full(mode) => *mode == FullMode::Allow,
            Self::Unanswered(_) => true,
        }
    }

    /// Hits that the charge of the step leaves out, as its counter [told](Outcome::cut); 0 if no counter was tested.
    #[must_use]
    pub const fn cut(&self) -> u64 {
        match self {
            Self::Counted(outcome) | Self::OnThisNode(outcome) | Self::Leased(outcome) => {
                outcome.cut
            }
            Self::Full(_) | Self::Unanswered(_) => 0,
        }
    }
}

/// The answer of a store to a request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Verdicts {
    /// The combined answer; a denied request has charged nothing but `Charge::Always`.
    pub allowed: bool,
    /// One outcome for each step, in the same order.
    pub outcomes: SmallVec<[StepOutcome; 4]>,
    /// The store's time of the decision: that of the request, or the latest the store has seen.
    pub at: Timestamp,
    /// The execution of an idempotent request: now, before, or not at all. Always
    /// [`Execution::Now`] unless the request has a [`Once`](crate::Once).
    pub execution: Execution,
}

impl Verdicts {
    /// The error behind [unanswered](StepOutcome::Unanswered) steps, if there are any.
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

/// An answer that is ready or pending, used from the store, which decides steps, to the edges,
/// which admit requests.
#[allow(
    clippy::large_enum_variant,
    reason = "a decision is handed over without allocating"
)]
#[derive(Debug)]
pub enum Answer<P, D = Verdicts> {
    /// Decided at once.
    Decided(D),
    /// To be awaited.
    Pending(P),
}

/// The ticket of stores that always decide at once: it cannot exist.
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
    fn only_a_counter_that_was_tested_leaves_hits_out() {
        let outcome = Outcome {
            verdict: Verdict::Fits,
            remaining: 0,
            reset_after: Micros::ZERO,
            full_after: Micros::ZERO,
            retry_after: Micros::ZERO,
            delay: Micros::ZERO,
            cut: 3,
        };
        let tested = [
            StepOutcome::Counted(outcome),
            StepOutcome::OnThisNode(outcome),
            StepOutcome::Leased(outcome),
        ];
        assert_eq!(tested.map(|outcome| outcome.cut()), [3; 3]);
        let untested = [
            StepOutcome::Full(FullMode::Allow),
            StepOutcome::Unanswered(StoreError::Timeout),
        ];
        assert_eq!(untested.map(|outcome| outcome.cut()), [0; 2]);
    }

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
