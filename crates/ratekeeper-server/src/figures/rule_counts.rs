//! The counts of all rules, from one walk: each second for those that need the last second's, and once for each scrape.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use ratekeeper_limiter::{ListedRule, RuleCounts, Snapshot};
use ratekeeper_rules::Rule;

/// A rule, and its counts since it was first loaded.
#[derive(Debug)]
pub(crate) struct CountedRule<'s> {
    pub(crate) listed: ListedRule<'s>,
    pub(crate) counts: RuleCounts,
}

/// Reads the counts of the rules of `snapshot`, in the order of the files.
pub(crate) fn walk(snapshot: &Snapshot) -> Vec<CountedRule<'_>> {
    snapshot.listed().map(CountedRule::from).collect()
}

impl<'s> From<ListedRule<'s>> for CountedRule<'s> {
    fn from(listed: ListedRule<'s>) -> Self {
        Self {
            counts: listed.stats.counts(),
            listed,
        }
    }
}

/// The counts of each rule as the last second began.
#[derive(Debug, Default)]
pub(crate) struct LastCounts(Mutex<HashMap<Arc<str>, RuleCounts>>);

/// The answers of each rule since a second began, also of those that had none.
#[derive(Debug)]
pub(crate) struct CountsDelta<'s>(Vec<(&'s Rule, RuleCounts)>);

impl LastCounts {
    /// The answers since the last second began, until `walked`.
    pub(crate) fn delta<'s>(&self, walked: &[CountedRule<'s>]) -> CountsDelta<'s> {
        let last = self.0.lock();
        let since = |it: &CountedRule<'s>| {
            let before = last.get(&it.listed.stats.rule);
            let before = before.copied().unwrap_or_default();
            (it.listed.rule, it.counts.since(&before))
        };
        CountsDelta(walked.iter().map(since).collect())
    }

    /// Ends the second at `walked`, and returns its answers.
    pub(crate) fn end_second<'s>(&self, walked: &[CountedRule<'s>]) -> CountsDelta<'s> {
        let delta = self.delta(walked);
        let counts = walked.iter();
        let counts = counts.map(|it| (Arc::clone(&it.listed.stats.rule), it.counts));
        *self.0.lock() = counts.collect();
        delta
    }
}

impl<'s> CountsDelta<'s> {
    /// Each rule with its answers, in the order of the files.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&'s Rule, &RuleCounts)> {
        self.0.iter().map(|(rule, counts)| (*rule, counts))
    }
}

#[cfg(test)]
mod tests {
    use ratekeeper_limiter::{Check, Limiter, LimiterOptions};
    use ratekeeper_rules::{Options, RuleSet, Source, load};
    use ratekeeper_store::{MemoryConfig, MemoryStore};

    use super::*;

    fn rules(keys: &[&str]) -> RuleSet {
        let rule =
            |key: &&str| format!("- {{ key: {key}, rate_limit: {{ window: 1h, limit: 1 }} }}\n");
        let text = keys.iter().map(rule).collect::<String>();
        let source = Source {
            name: "rules.yaml".to_owned(),
            text: format!("domain: d\ndescriptors:\n{text}"),
        };
        let loaded = load(&[source], &Options::default());
        loaded.expect("the rules are valid").rules
    }

    fn ask(limiter: &Limiter<MemoryStore>, key: &str) {
        limiter.check_now(&Check::new("d").descriptor([(key, "x")]));
    }

    fn told(delta: &CountsDelta<'_>) -> Vec<(String, u64, u64)> {
        let told = |(rule, counts): (&Rule, &RuleCounts)| {
            (rule.id.to_string(), counts.allowed, counts.denied)
        };
        delta.iter().map(told).collect()
    }

    #[test]
    fn a_second_has_what_was_answered_in_it_and_a_rule_that_goes_takes_nothing_along() {
        let store = MemoryStore::new(MemoryConfig::default()).expect("there is memory");
        let limiter = Limiter::new(rules(&["a", "b"]), store, LimiterOptions::default());
        let last = LastCounts::default();
        for key in ["a", "a", "b"] {
            ask(&limiter, key);
        }
        let snapshot = limiter.snapshot();
        let walked = walk(&snapshot);
        let begun = told(&last.delta(&walked));
        assert_eq!(told(&last.end_second(&walked)), begun);
        assert_eq!(begun, [("d.a".to_owned(), 1, 1), ("d.b".to_owned(), 1, 0)]);
        assert_eq!(
            told(&last.delta(&walked)),
            [("d.a".to_owned(), 0, 0), ("d.b".to_owned(), 0, 0)]
        );
        ask(&limiter, "b");
        limiter.replace_rules(rules(&["b"]));
        let snapshot = limiter.snapshot();
        assert_eq!(
            told(&last.delta(&walk(&snapshot))),
            [("d.b".to_owned(), 0, 1)]
        );
    }
}
