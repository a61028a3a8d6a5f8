//! `regions` of the limits of plans: as the limit has them that they replace.

use ratekeeper_core::Micros;

use crate::draft::BuiltLimit;
use crate::{OnSilence, RegionMode, RuleLimit};

/// The keys about regions of one of the default plan's limits.
pub(super) struct RegionsOfWindow {
    window: Micros,
    regions: Option<RegionMode>,
    post_interval: Option<Micros>,
    on_silence: Option<OnSilence>,
}

impl RegionsOfWindow {
    /// Those of all `limits`.
    pub(super) fn of(limits: &[BuiltLimit]) -> Vec<Self> {
        let limited = limits.iter().filter_map(|built| match &built.limit {
            RuleLimit::Limited(limit) => Some((limit.window(), &built.policy)),
            RuleLimit::Unlimited => None,
        });
        let keys = limited.map(|(window, policy)| Self {
            window,
            regions: policy.regions,
            post_interval: policy.post_interval,
            on_silence: policy.on_silence,
        });
        keys.collect()
    }

    /// Has regions share the limit of another plan, if it says nothing else, like that of the default plan with its window, or
    /// else like the first one that they share.
    pub(super) fn share(defaults: &[Self], built: &mut BuiltLimit) {
        let RuleLimit::Limited(limit) = &built.limit else {
            return;
        };
        let policy = &mut built.policy;
        let mut all = defaults.iter();
        let same = all.find(|keys| keys.window == limit.window());
        let is_shared = |keys: &&Self| {
            let mode = keys.regions;
            mode.is_some_and(|mode| mode != RegionMode::Unshared)
        };
        let shared = || defaults.iter().find(is_shared);
        if let (None, Some(keys)) = (policy.regions, same.or_else(shared)) {
            policy.regions = keys.regions;
            policy.post_interval = policy.post_interval.or(keys.post_interval);
            policy.on_silence = policy.on_silence.or(keys.on_silence);
        }
    }
}
