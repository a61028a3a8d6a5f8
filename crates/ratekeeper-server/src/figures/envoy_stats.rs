//! The counts of rules under the names that envoyproxy/ratelimit gives them, for those who migrate.
//!
//! `total_hits`, `within_limit`, `over_limit`, `near_limit` and `shadow_mode` of each place in the rules. They count
//! decisions, where envoyproxy/ratelimit counts hits; the limits of all plans, and of a list, at one place are added up.

use std::collections::BTreeMap;

use ratekeeper_limiter::RuleCounts;
use ratekeeper_rules::{Domain, Rule, RuleSet};

/// The counts of one place in the rules.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct EnvoyCounts {
    pub(crate) total_hits: u64,
    pub(crate) within_limit: u64,
    /// Denials, and those that shadow mode did not enforce.
    pub(crate) over_limit: u64,
    /// Requests that passed with less than a fifth of the limit left.
    pub(crate) near_limit: u64,
    pub(crate) shadow_mode: u64,
}

/// A place in the rules: its domain, and the composite keys from there, secrets as fingerprints.
pub(crate) type RulePath = (Box<str>, Vec<String>);

impl EnvoyCounts {
    /// Sums the counts of rules by their places in `rules`.
    pub(crate) fn by_place<'a>(
        rules: &RuleSet,
        counted: impl Iterator<Item = (&'a Rule, &'a RuleCounts)>,
    ) -> BTreeMap<RulePath, Self> {
        let mut places: BTreeMap<RulePath, Self> = BTreeMap::new();
        for (rule, counts) in counted {
            let domain = rules.domain(&rule.domain);
            let path = rule.path.iter().map(|node| shown(domain, node));
            let place = ((*rule.domain).into(), path.collect());
            places.entry(place).or_default().add(&counts.into());
        }
        places
    }

    pub(crate) const fn add(&mut self, other: &Self) {
        self.total_hits += other.total_hits;
        self.within_limit += other.within_limit;
        self.over_limit += other.over_limit;
        self.near_limit += other.near_limit;
        self.shadow_mode += other.shadow_mode;
    }

    /// Each count with its name.
    pub(crate) const fn named(&self) -> [(&'static str, u64); 5] {
        [
            ("total_hits", self.total_hits),
            ("within_limit", self.within_limit),
            ("over_limit", self.over_limit),
            ("near_limit", self.near_limit),
            ("shadow_mode", self.shadow_mode),
        ]
    }
}

impl From<&RuleCounts> for EnvoyCounts {
    fn from(counts: &RuleCounts) -> Self {
        Self {
            total_hits: counts.answers(),
            within_limit: counts.allowed,
            over_limit: counts.denied + counts.shadow_denied,
            near_limit: counts.near,
            shadow_mode: counts.shadow_denied,
        }
    }
}

/// A node of the rules, `key` or `key_value`, without a secret value.
fn shown(domain: Option<&Domain>, node: &str) -> String {
    let Some(domain) = domain else {
        return node.to_owned();
    };
    // Keys may have underscores too: every way to part it counts.
    for (at, _) in node.match_indices('_') {
        let (key, value) = (&node[..at], &node[at + 1..]);
        if domain.is_secret(key) {
            return domain.composite(key, Some(value));
        }
    }
    node.to_owned()
}
