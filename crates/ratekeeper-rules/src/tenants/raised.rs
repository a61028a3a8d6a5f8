//! The override that gives a tenant a raised limit.

use ratekeeper_core::duration::format_duration;

use super::TenantOverride;
use crate::adjust::AdjustPolicy;
use crate::rule::Rule;

impl AdjustPolicy {
    /// The limit of `rule` raised by `steps`, as an override of the tenant as a whole. It says all that it would otherwise take
    /// from the default plan: with another algorithm it would have counters of its own, and no usage in them.
    #[must_use]
    pub fn override_of(&self, rule: &Rule, steps: u16) -> Option<TenantOverride> {
        let limit = rule.limited()?;
        let unit = rule.unit.map(|unit| unit.name().to_lowercase().into());
        let has_own_burst = limit.algorithm().has_burst() && limit.capacity() != limit.quota();
        Some(TenantOverride {
            requests_per_unit: self.raised(limit.quota(), steps),
            window: match &unit {
                Some(_) => None,
                None => Some(format_duration(limit.window()).into()),
            },
            unit,
            burst: has_own_burst.then(|| self.raised(limit.capacity(), steps)),
            algorithm: Some(limit.algorithm().name().into()),
            post_paid: Some(limit.is_post_paid()),
            max_debt: limit.max_debt().map(|debt| self.raised(debt, steps)),
            steps: Some(steps),
            ..TenantOverride::default()
        })
    }
}
