//! The answers of a limiter.

mod answered;

use std::borrow::Cow;
use std::sync::Arc;

use arc_swap::Guard;
use ratekeeper_core::{Limit, Micros, Verdict};
use ratekeeper_rules::{Rule, RuleIndex, Unit};
use smallvec::SmallVec;

use crate::{LimitSource, Snapshot};
pub use answered::Answered;

/// The answer to a request, together with the rules that gave it.
#[derive(Debug)]
pub struct Decision {
    snapshot: Guard<Arc<Snapshot>>,
    allowed: bool,
    answers: DescriptorAnswers,
    binding: Option<u16>,
    shadowed: ShadowDenials,
}

pub(crate) type DescriptorAnswers = SmallVec<[DescriptorAnswer; 2]>;

/// The limits that would have denied a request; one is stored inline.
pub(crate) type ShadowDenials = SmallVec<[ShadowDenial; 1]>;

/// A limit that would have denied the request, were it enforced.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ShadowDenial {
    /// The number of the descriptor that it limits.
    pub descriptor: u16,
    /// The origin of the limit.
    pub source: LimitSource,
}

impl Decision {
    /// A decision that is filled in where it lies, since moving it costs as much as matching.
    pub(crate) fn begin(snapshot: Guard<Arc<Snapshot>>) -> Self {
        Self {
            snapshot,
            allowed: true,
            answers: DescriptorAnswers::new(),
            binding: None,
            shadowed: ShadowDenials::new(),
        }
    }

    /// The rules to match against, and where the answers and the limits go that are only in shadow over.
    pub(crate) fn parts(&mut self) -> (&Snapshot, &mut DescriptorAnswers, &mut ShadowDenials) {
        (&self.snapshot, &mut self.answers, &mut self.shadowed)
    }

    /// Concludes the decision once the answers are filled in.
    pub(crate) fn conclude(&mut self, allowed: bool) {
        self.allowed = allowed;
        self.binding = match &self.answers[..] {
            // Most requests have one descriptor: nothing to rank.
            [answer] => {
                let binding = answer.binding.as_ref();
                binding.filter(|binding| !binding.shadow).map(|_| 0)
            }
            answers => most_restrictive(allowed, answers),
        };
    }

    /// Returns true if the request may pass.
    #[must_use]
    pub const fn allowed(&self) -> bool {
        self.allowed
    }

    /// The answers, one for each descriptor of the request, in the same order.
    #[must_use]
    pub fn answers(&self) -> &[DescriptorAnswer] {
        &self.answers
    }

    /// The limits that were over and did not deny the request: in shadow mode, for subjects that `enforce` leaves out, or
    /// in quota mode beside others that have room.
    #[must_use]
    pub fn shadowed(&self) -> &[ShadowDenial] {
        &self.shadowed
    }

    /// The most restrictive limit of the request: of those that deny it, the one with the longest wait;
    /// else the one with the least remaining and, on a tie, the one that takes longest to have more.
    /// None if no enforced limit matched.
    #[must_use]
    pub fn binding(&self) -> Option<&Binding> {
        self.answers
            .get(usize::from(self.binding?))?
            .binding
            .as_ref()
    }

    /// The longest delay that any limit imposes on the request before it goes on; zero if it need not
    /// wait, or was denied.
    #[must_use]
    pub fn delay(&self) -> Micros {
        self.answers
            .iter()
            .map(|answer| answer.delay)
            .max()
            .unwrap_or_default()
    }

    /// Returns true if at least one limit was answered without being counted.
    #[must_use]
    pub fn is_degraded(&self) -> bool {
        self.answers.iter().any(|answer| answer.degraded)
    }

    /// The rules that were in force.
    #[must_use]
    pub fn snapshot(&self) -> &Snapshot {
        &self.snapshot
    }

    /// The rules that were in force, for the caller to keep.
    pub(crate) fn shared_snapshot(&self) -> Arc<Snapshot> {
        Arc::clone(&self.snapshot)
    }

    /// The number of the descriptor that [`Self::binding`] is the limit of.
    #[must_use]
    pub fn binding_descriptor(&self) -> Option<usize> {
        self.binding.map(usize::from)
    }

    /// Returns true if no limit, not even an `unlimited` one, matched any descriptor: the request passed
    /// uncounted.
    #[must_use]
    pub fn is_unmatched(&self) -> bool {
        let matched =
            |answer: &DescriptorAnswer| answer.binding.is_some() || answer.unlimited.is_some();
        !self.answers().iter().any(matched)
    }

    /// The rule behind `binding`; None if the request brought its own limit.
    #[must_use]
    pub fn rule(&self, binding: &Binding) -> Option<&Rule> {
        self.snapshot.rule(binding.source)
    }

    /// The state of the [most restrictive limit](Self::binding). If the request passed, there is no wait before a retry,
    /// though a limit in quota or shadow mode may be over.
    #[must_use]
    pub fn limit_status(&self) -> Option<LimitStatus<'_>> {
        let mut status = self.limit_status_of(self.binding()?);
        status.retry_after = status.retry_after.filter(|_| !self.allowed);
        Some(status)
    }

    /// The state of the limit of `binding`, with the time until the same hits fit it.
    #[must_use]
    pub fn limit_status_of(&self, binding: &Binding) -> LimitStatus<'_> {
        let rule = self.rule(binding);
        let answered = &binding.answered;
        let debt = |limit: &Limit| limit.debt(answered.remaining, answered.full_after);
        let debt = rule.and_then(Rule::enforced).map_or(0, debt);
        let id = rule.map(|rule| &*rule.id);
        LimitStatus::new(id, binding.ceiling, answered, debt)
    }
}

/// The verdict on one descriptor.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Code {
    /// Within its limits, or without any.
    Ok,
    /// Over one of them.
    OverLimit,
}

/// The answer to one descriptor.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct DescriptorAnswer {
    /// The verdict; limits in shadow mode have no say in it.
    pub code: Code,
    /// The most restrictive of its limits; one in shadow mode if there is no other.
    pub binding: Option<Binding>,
    /// The rule that lets everything pass, if that is what matched.
    pub unlimited: Option<RuleIndex>,
    /// The delay that its limits ask for, those in shadow mode left out.
    pub delay: Micros,
    /// True if one of its limits was answered without being counted.
    pub degraded: bool,
}

impl DescriptorAnswer {
    pub(crate) const NONE: Self = Self {
        code: Code::Ok,
        binding: None,
        unlimited: None,
        delay: Micros::ZERO,
        degraded: false,
    };
}

/// A limit and its answer.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Binding {
    /// The origin of the limit.
    pub source: LimitSource,
    /// Hits a window holds.
    pub quota: u64,
    /// The limit as callers are told it: the quota, or a larger burst.
    pub ceiling: u64,
    /// The window.
    pub window: Micros,
    /// The unit that envoyproxy/ratelimit has for this window, if any.
    pub unit: Option<Unit>,
    /// True if it is in shadow mode.
    pub shadow: bool,
    /// True if it is a reason for the denial. A limit can be over without being one: in shadow mode, or
    /// in quota mode beside others that have room.
    pub denies: bool,
    /// The answer of the limit.
    pub answered: Answered,
}

/// A limit and its state after a request. Every edge tells its callers this, whether the limiter in this process decided
/// or a service.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct LimitStatus<'a> {
    /// The id of its rule; None if the request brought the limit along.
    pub rule: Option<Cow<'a, str>>,
    /// Hits a window holds, or a larger burst; of a concurrency limit, permits.
    pub limit: u64,
    /// Hits left. Fewer than a denied request asked for, but not always none.
    pub remaining: u64,
    /// Time until there is more than `remaining`, zero if nothing is missing; after a denial that a wait can end, the
    /// same as `retry_after`.
    pub reset_after: Micros,
    /// Time until the full limit is available again.
    pub full_after: Micros,
    /// Time until the same hits would fit. None if they fit now, or never will.
    pub retry_after: Option<Micros>,
    /// True if the hits did not fit. A request may pass all the same, by shadow or quota mode.
    pub is_over: bool,
    /// Hits by which a post-paid bucket is below zero.
    pub debt: u64,
}

/// A limit that a request is held to, as its caller is told it.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Policy {
    /// The origin of the limit.
    pub source: LimitSource,
    /// The limit as callers are told it: hits a window holds, or a larger burst.
    pub ceiling: u64,
    /// The window; of a concurrency limit, the timeout of a permit.
    pub window: Micros,
    /// True if it limits the number of requests in flight.
    pub is_concurrency: bool,
}

/// The limits that a request is held to; up to two are stored inline.
pub type Policies = SmallVec<[Policy; 2]>;

impl<'a> LimitStatus<'a> {
    pub(crate) fn new(rule: Option<&'a str>, limit: u64, answered: &Answered, debt: u64) -> Self {
        let wait = answered.retry_after;
        let can_wait = match answered.verdict {
            Verdict::Never => false,
            Verdict::Later => wait < Micros::MAX,
            // A peek fits, and says when one hit would.
            Verdict::Fits => !wait.is_zero() && wait < Micros::MAX,
        };
        Self {
            rule: rule.map(Cow::Borrowed),
            limit,
            remaining: answered.remaining,
            reset_after: answered.reset_after,
            full_after: answered.full_after,
            retry_after: can_wait.then_some(wait),
            is_over: !answered.fits(),
            debt,
        }
    }

    /// The id of the rule; empty if the request brought the limit along.
    #[must_use]
    pub fn rule_id(&self) -> &str {
        self.rule.as_deref().unwrap_or_default()
    }

    /// A copy without borrowed parts.
    #[must_use]
    pub fn into_owned(self) -> LimitStatus<'static> {
        LimitStatus {
            rule: self.rule.map(|rule| Cow::Owned(rule.into_owned())),
            ..self
        }
    }
}

impl Binding {
    /// Ranks the limits of one descriptor: the reasons for a denial first, those in shadow mode last.
    pub(crate) fn rank(&self) -> impl Ord + use<> {
        (self.shadow, !self.denies, self.answered.rank())
    }
}

/// The descriptor with the most restrictive limit: of a denied request, among those that deny
/// it; of an allowed one, among those that have room, by what is left.
fn most_restrictive(allowed: bool, answers: &[DescriptorAnswer]) -> Option<u16> {
    let candidates = (0_u16..).zip(answers).filter_map(|(number, answer)| {
        let binding = answer.binding.filter(|binding| !binding.shadow)?;
        let (class, left, wait) = binding.answered.rank();
        let rank = match allowed {
            true => (
                !binding.answered.fits(),
                0,
                binding.answered.remaining,
                wait,
            ),
            false => (!binding.denies, class, left, wait),
        };
        Some((rank, number))
    });
    candidates.min().map(|(_, number)| number)
}
