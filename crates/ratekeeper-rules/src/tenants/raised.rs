//! The override that gives a tenant a raised limit.

use ratekeeper_core::duration::format_duration;

use super::TenantOverride;
use crate::adjust::AdjustPolicy;
use crate::rule::Rule;

impl AdjustPolicy {
    /// The limit of `rule` raised by `steps`, as an override of the tenant as a whole.
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
            steps: Some(steps),
            ..TenantOverride::default()
        })
    }
}
