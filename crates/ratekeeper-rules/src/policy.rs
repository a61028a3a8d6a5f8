//! Keys that a domain, a descriptor and a limit may have: how limits are kept and enforced.

use std::sync::Arc;

use ratekeeper_core::{Algorithm, Micros};

use crate::rule::LEASE;
use crate::{
    Consistency, Enforce, FailureMode, LeakyOverRls, OnSilence, Position, Profile, RegionMode,
    Rule, RuleLimit,
};

/// The policy keys of one mapping; [`None`] where a key is missing.
#[derive(Clone, PartialEq, Debug, Default)]
pub(crate) struct Policy {
    pub(crate) algorithm: Option<Algorithm>,
    pub(crate) consistency: Option<Consistency>,
    pub(crate) count_denied: Option<bool>,
    pub(crate) enabled: Option<bool>,
    pub(crate) enforce: Option<Enforce>,
    pub(crate) leaky_over_rls: Option<LeakyOverRls>,
    pub(crate) lease_time: Option<Micros>,
    pub(crate) on_silence: Option<OnSilence>,
    pub(crate) on_store_failure: Option<FailureMode>,
    pub(crate) post_interval: Option<Micros>,
    pub(crate) regions: Option<RegionMode>,
    pub(crate) store: Option<Box<str>>,
    pub(crate) sync_interval: Option<Micros>,
}

impl Policy {
    /// A rule of this policy in `domain`, without a limit.
    pub(crate) fn rule(
        &self,
        domain: &Arc<str>,
        (profile, on_store_failure): (Profile, FailureMode),
    ) -> Rule {
        Rule {
            id: "".into(),
            domain: Arc::clone(domain),
            path: [].into(),
            place: Position {
                file: "".into(),
                line: 0,
                column: 0,
            },
            limit: RuleLimit::Unlimited,
            calendar: None,
            unit: None,
            window_text: "".into(),
            name: None,
            replaces: Vec::new(),
            shadow: false,
            quota_mode: false,
            enabled: self.enabled.unwrap_or(true),
            enforce: self.enforce.unwrap_or(Enforce::ALL),
            count_denied: self.counts_denied(profile),
            detailed_metric: false,
            value_to_metric: false,
            #[cfg(feature = "yaml")]
            metadata: None,
            plan: None,
            consistency: self.consistency,
            lease: self.lease_time.unwrap_or(LEASE),
            is_global: false,
            regions: self.regions.filter(|mode| *mode != RegionMode::Unshared),
            post_interval: self.post_interval,
            on_silence: self.on_silence,
            share: None,
            sync_interval: self.sync_interval,
            store: self.store.clone(),
            on_store_failure: self.on_store_failure.unwrap_or(on_store_failure),
            leaky_over_rls: self.leaky_over_rls.unwrap_or_default(),
            retry_after: None,
        }
    }

    /// Returns true if denied requests count.
    pub(crate) fn counts_denied(&self, profile: Profile) -> bool {
        self.count_denied.unwrap_or_else(|| profile.counts_denied())
    }

    /// Fills the gaps in this policy from `outer`. A rule that is disabled outside stays disabled.
    pub(crate) fn within(self, outer: &Self) -> Self {
        let off = outer.enabled == Some(false) || self.enabled == Some(false);
        Self {
            algorithm: self.algorithm.or(outer.algorithm),
            consistency: self.consistency.or(outer.consistency),
            count_denied: self.count_denied.or(outer.count_denied),
            enabled: if off {
                Some(false)
            } else {
                self.enabled.or(outer.enabled)
            },
            enforce: self.enforce.or(outer.enforce),
            leaky_over_rls: self.leaky_over_rls.or(outer.leaky_over_rls),
            lease_time: self.lease_time.or(outer.lease_time),
            on_silence: self.on_silence.or(outer.on_silence),
            on_store_failure: self.on_store_failure.or(outer.on_store_failure),
            post_interval: self.post_interval.or(outer.post_interval),
            regions: self.regions.or(outer.regions),
            store: self.store.or_else(|| outer.store.clone()),
            sync_interval: self.sync_interval.or(outer.sync_interval),
        }
    }
}

/// The message and the help for `algorithm: concurrency`.
pub(crate) const NOT_A_RATE: (&str, &str) = (
    "concurrency is not an algorithm of a rate",
    "write `concurrency: { limit: 20, timeout: 60s }` in the descriptor, beside or instead of `rate_limit:`",
);
