//! A decided request, with all limits that took part.

use ratekeeper_core::Timestamp;
use ratekeeper_store::{Step, Verdicts};

use super::MatchedCheck;
use crate::decision::{Answered, Decision, Policies};
use crate::plan::Plan;
use crate::{Check, LimitSource, RequestDescriptors};

/// A decided request: its decision, and all limits that took part.
#[derive(Clone, Copy, Debug)]
pub struct Ruling<'a> {
    /// The descriptors of the request.
    pub descriptors: RequestDescriptors<'a>,
    /// Allow or deny, and the status of each descriptor.
    pub decision: &'a Decision,
    /// Time of the request, by the limiter's clock.
    pub asked_at: Timestamp,
    plan: &'a Plan,
    verdicts: &'a Verdicts,
}

impl<'a> Ruling<'a> {
    pub(crate) fn new(
        check: &'a Check<'_>,
        matched: &'a MatchedCheck,
        verdicts: &'a Verdicts,
    ) -> Self {
        Self {
            descriptors: check.descriptors(),
            decision: &matched.decision,
            asked_at: matched.now,
            plan: &matched.plan,
            verdicts,
        }
    }

    /// The enforced limits that the request is held to, each once, in the order of its
    /// descriptors.
    #[must_use]
    pub fn policies(&self) -> Policies {
        self.plan.policies(self.decision.snapshot())
    }

    /// Every limit that took part, in the order of the descriptors: the step the store was asked to
    /// decide, the limit's origin, and its answer. A decision has room for one limit of each
    /// descriptor; statistics want them all.
    pub fn limits(&self) -> impl Iterator<Item = (&'a Step, LimitSource, Answered)> + use<'a> {
        self.plan.answers(self.decision.snapshot(), self.verdicts)
    }
}
