//! Metrics under the names that envoyproxy/ratelimit has at `/metrics`, for dashboards and alerts made for it.

use std::collections::BTreeMap;
use std::fmt;

use ratekeeper_rules::RuleSet;

use crate::app::App;
use crate::figures::envoy_stats::{EnvoyCounts, RulePath};
use crate::figures::families::{Families, NO_LABELS, by};
use crate::figures::rule_counts::CountedRule;
use crate::reload::ReloadStatus;

/// The counts that envoyproxy/ratelimit has.
#[derive(Debug)]
pub(super) struct EnvoyFigures {
    places: BTreeMap<RulePath, EnvoyCounts>,
    /// Decisions that no server of the store took.
    store_errors: u64,
}

/// The first two keys of a place: envoyproxy/ratelimit has no labels for more.
type Labels<'a> = (&'a str, Option<&'a str>, Option<&'a str>);

impl EnvoyFigures {
    pub(super) fn read(app: &App, rules: &RuleSet, walked: &[CountedRule<'_>]) -> Self {
        let servers = app.limiter.store().servers();
        let errors = servers.iter().flat_map(|server| &server.errors);
        let counted = walked.iter().map(|it| (it.listed.rule, &it.counts));
        Self {
            places: EnvoyCounts::by_place(rules, counted),
            store_errors: errors.map(|(_, count)| count).sum(),
        }
    }

    /// Writes them without the end `_total`, which their names there do not have.
    pub(super) fn encode(
        &self,
        reloads: &ReloadStatus,
        families: &mut Families<'_>,
    ) -> fmt::Result {
        let mut folded: BTreeMap<Labels<'_>, EnvoyCounts> = BTreeMap::new();
        for ((domain, path), counts) in &self.places {
            let key = |number: usize| path.get(number).map(|node| &**node);
            let sum = folded.entry((&**domain, key(0), key(1))).or_default();
            sum.add(counts);
        }
        for (number, (name, _)) in EnvoyCounts::default().named().iter().enumerate() {
            let counts = folded.iter().map(|((domain, key1, key2), counts)| {
                let keys = [("key1", *key1), ("key2", *key2)].into_iter();
                let keys = keys.filter_map(|(name, key)| Some((name, key?)));
                let labels: Vec<_> = [("domain", *domain)].into_iter().chain(keys).collect();
                (
                    labels,
                    counts.named().get(number).map_or(0, |(_, count)| *count),
                )
            });
            families.untyped(
                &format!("ratelimit_service_rate_limit_{name}"),
                "As envoyproxy/ratelimit names it, in decisions",
                counts,
            )?;
        }
        for (name, count) in [
            ("ratelimit_service_config_load_success", reloads.accepted),
            ("ratelimit_service_config_load_error", reloads.refused),
        ] {
            let help = "As envoyproxy/ratelimit names it: loads of the rules";
            families.untyped(name, help, [(NO_LABELS, count)])?;
        }
        families.untyped(
            "ratelimit_service_should_rate_limit_error",
            "As envoyproxy/ratelimit names it: decisions that the store did not take",
            by("err_type", [("redis_error", self.store_errors)]),
        )
    }
}
