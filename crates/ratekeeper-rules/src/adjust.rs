//! `adjust:`, the policy by which limits of tenants follow their usage.

use ratekeeper_core::{MAX_COUNT, Micros, Timestamp};

use crate::named::named;
use crate::{PlanIndex, Rule, RuleIndex};

/// The shortest time over which usage is judged, because calls are counted by minute.
const MINUTE: Micros = Micros::from_secs(60);

/// The longest window of a limit that a policy raises: usage is added up over as long a time.
pub(crate) const WINDOW_MAX: Micros = Micros::from_secs(31 * 24 * 3_600);

/// The most steps that a tenant's limit is raised by.
pub(crate) const STEPS_MAX: u64 = 20;

/// The mode of a policy.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
#[cfg_attr(
    feature = "yaml",
    derive(serde::Deserialize, schemars::JsonSchema),
    serde(rename_all = "snake_case")
)]
pub enum AdjustMode {
    /// Does nothing. What was raised stays as it is.
    Off,
    /// Tells and audits each step that it would take, and changes no limit.
    #[default]
    Shadow,
    /// Changes limits.
    On,
}

named!(AdjustMode: Off "off", Shadow "shadow", On "on");

/// The policy of a domain by which limits of its tenants follow their usage.
///
/// A tenant's limit is that of its plan, raised by a number of steps. One step is added while the tenant uses most
/// of its limit, at most one a minute, and taken away once it would have managed with one step less for a long time.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct AdjustPolicy {
    /// The mode.
    pub mode: AdjustMode,
    /// The plans whose tenants' limits it raises, each with the rule of the tenant as a whole.
    pub plans: Vec<(PlanIndex, RuleIndex)>,
    /// The share of its limit at which a tenant gets a step, 1 to 100.
    pub raise_at_percent: u8,
    /// The size of a step in percent of the plan's limit, 1 to 100.
    pub step_percent: u8,
    /// The most steps, 1 to 20.
    pub steps_max: u16,
    /// The time without need of its last step after which a tenant loses it.
    pub lower_after: Micros,
}

/// The steps by which the limit of a tenant is raised.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RaisedSteps {
    /// Their number; 0 for the plan's own limit.
    pub steps: u16,
    /// The time of the last change of that number.
    pub since: Timestamp,
}

/// The calls of a tenant that its limit allowed, each over the [`period`](AdjustPolicy::period) of the limit.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ObservedCalls {
    /// In the latest period.
    pub latest: u64,
    /// In the busiest period since [`AdjustPolicy::lower_after`] ago.
    pub peak: u64,
}

impl AdjustPolicy {
    /// The number of steps that a tenant is to have, if it is not the one that it has: one more or one less.
    ///
    /// `capacity` is what the plan's limit lets pass in a period, without any step.
    #[must_use]
    pub fn next(
        &self,
        capacity: u64,
        raised: RaisedSteps,
        demand: ObservedCalls,
        now: Timestamp,
    ) -> Option<u16> {
        let RaisedSteps { steps, since } = raised;
        if steps > self.steps_max {
            // The policy has become narrower.
            return Some(self.steps_max);
        }
        if steps < self.steps_max && self.needs_more(demand.latest, capacity, steps) {
            // Several nodes look at the same calls: together they take no more steps than one.
            return (now >= since.after(MINUTE)).then_some(steps + 1);
        }
        let fewer = steps.checked_sub(1)?;
        let is_quiet = !self.needs_more(demand.peak, capacity, fewer);
        (is_quiet && now >= since.after(self.lower_after)).then_some(fewer)
    }

    /// Returns true if so many calls are a reason to raise a limit that has been raised by `steps`.
    fn needs_more(&self, calls: u64, capacity: u64, steps: u16) -> bool {
        capacity > 0 && calls >= self.threshold(capacity, steps)
    }

    /// The least calls in a period that are a reason to raise a limit that has been raised by `steps`.
    #[must_use]
    pub fn threshold(&self, capacity: u64, steps: u16) -> u64 {
        let limit = u128::from(self.raised(capacity, steps));
        let calls = (limit * u128::from(self.raise_at_percent)).div_ceil(100);
        u64::try_from(calls).unwrap_or(u64::MAX).max(1)
    }

    /// `hits` raised by `steps`.
    #[must_use]
    pub fn raised(&self, hits: u64, steps: u16) -> u64 {
        let percent = 100 + u128::from(self.step_percent) * u128::from(steps);
        let raised = u128::from(hits) * percent / 100;
        u64::try_from(raised).unwrap_or(MAX_COUNT).min(MAX_COUNT)
    }

    /// The time over which usage of `rule` is added up, in whole minutes: its window, at least one minute.
    #[must_use]
    pub fn period(rule: &Rule) -> u64 {
        let window = rule.limited().map_or(MINUTE, |limit| limit.window());
        window.get().div_ceil(MINUTE.get()).max(1)
    }

    /// The calls that `rule` lets pass in a [`period`](Self::period).
    #[must_use]
    pub fn capacity(rule: &Rule) -> u64 {
        let Some(limit) = rule.limited() else {
            return 0;
        };
        let period = u128::from(Self::period(rule)) * u128::from(MINUTE.get());
        let calls = u128::from(limit.quota()) * period / u128::from(limit.window().get().max(1));
        u64::try_from(calls).unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests;
