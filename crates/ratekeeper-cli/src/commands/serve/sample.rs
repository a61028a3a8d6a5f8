//! A request that shows the rules at work: one that is denied after a few tries.

use ratekeeper_core::Micros;
use ratekeeper_rules::{Domain, Entry, Node, Rule, RuleIndex, RuleSet};

/// A request to try, and how often.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Sample {
    pub(crate) domain: String,
    /// Keys and values, in order.
    pub(crate) entries: Vec<(String, String)>,
    /// The try that is denied, 1 being the first.
    pub(crate) denied_at: u64,
}

/// Above this a sample is too long to paste.
const TRIES_MAX: u64 = 50;

/// Below this window the tries may not all fall into it.
const WINDOW_MIN: Micros = Micros::from_secs(60);

impl Sample {
    /// The request of `rules` that is denied soonest and for long enough to be seen; [`None`] if there is none.
    pub(crate) fn of(rules: &RuleSet) -> Option<Sample> {
        let mut search = Search {
            rules,
            path: Vec::new(),
            best: None,
        };
        for domain in rules.domains() {
            search.visit(domain, domain.nodes());
        }
        search.best
    }
}

struct Search<'a> {
    rules: &'a RuleSet,
    path: Vec<(String, String)>,
    best: Option<Sample>,
}

impl Search<'_> {
    /// As deep as the rules are, which the rules crate bounds.
    fn visit(&mut self, domain: &Domain, nodes: &[Node]) {
        for node in nodes {
            // What is printed stays in logs, and an API key that rules name is somebody's.
            let names_secret = node.value().is_some_and(|value| !value.contains('*'));
            if names_secret && domain.is_secret(node.key()) {
                continue;
            }
            self.path.push((node.key().to_owned(), value(node)));
            for index in node.rules() {
                self.consider(domain, *index);
            }
            self.visit(domain, node.nodes());
            self.path.pop();
        }
    }

    fn consider(&mut self, domain: &Domain, index: RuleIndex) {
        let Some(denied_at) = denied_at(self.rules.rule(index)) else {
            return;
        };
        let better = self
            .best
            .as_ref()
            .is_none_or(|best| denied_at < best.denied_at);
        if better && self.meets(domain, index) {
            let (domain, entries) = (domain.name().to_owned(), self.path.clone());
            self.best = Some(Sample {
                domain,
                entries,
                denied_at,
            });
        }
    }

    /// Returns true if the made-up request really ends at that rule: a more specific sibling may take it.
    fn meets(&self, domain: &Domain, index: RuleIndex) -> bool {
        let entries: Vec<Entry<'_>> = self
            .path
            .iter()
            .map(|(key, value)| Entry { key, value })
            .collect();
        let walk = domain.walk(&entries);
        let last = walk.iter().last();
        walk.is_complete() && last.is_some_and(|visit| visit.node.rules().contains(&index))
    }
}

/// A value that the node matches.
fn value(node: &Node) -> String {
    match node.value() {
        Some(value) => value.replace('*', "1"),
        None if node.key().contains("address") || node.key().ends_with("ip") => {
            "203.0.113.7".to_owned()
        }
        None => "demo".to_owned(),
    }
}

/// The number of the try that the rule denies, if it does so soon, for certain and for everybody.
fn denied_at(rule: &Rule) -> Option<u64> {
    let limit = rule.limited()?;
    let tries = limit.capacity().checked_add(1)?;
    let enforced = rule.enabled && !rule.shadow && !rule.quota_mode && rule.enforce.is_all();
    let algorithm = limit.algorithm();
    let counts = !algorithm.holds_permits() && !algorithm.has_turns();
    let seen = limit.window() >= WINDOW_MIN && (2..=TRIES_MAX).contains(&tries);
    (enforced && counts && seen).then_some(tries)
}

#[cfg(test)]
mod tests {
    use super::*;
    use ratekeeper_rules::{Options, Source, load};

    fn sample(text: &str) -> Option<Sample> {
        let source = Source {
            name: "r.yaml".to_owned(),
            text: text.to_owned(),
        };
        Sample::of(
            &load(&[source], &Options::default())
                .expect("the rules are good")
                .rules,
        )
    }

    #[test]
    fn the_soonest_denial_that_can_be_met_is_shown() {
        let found = sample(
            "domain: d\ndescriptors:\n- {key: a, rate_limit: {window: 1m, limit: 9}}\n\
             - {key: b, value: x*, rate_limit: {window: 1h, limit: 3}}\n\
             - {key: c, rate_limit: {window: 1s, limit: 1}}\n\
             - {key: e, shadow_mode: true, rate_limit: {window: 1h, limit: 2}}\n",
        );
        let entries = vec![("b".to_owned(), "x1".to_owned())];
        assert_eq!(
            found,
            Some(Sample {
                domain: "d".to_owned(),
                entries,
                denied_at: 4
            })
        );
    }

    #[test]
    fn no_secret_of_the_rules_is_shown() {
        let text = "domain: d\ndescriptors:\n- {key: api_key, value: live-4242, rate_limit: {window: 1h, limit: 2}}\n";
        assert_eq!(sample(text), None);
        let other = format!("{text}- {{key: api_key, rate_limit: {{window: 1h, limit: 3}}}}\n");
        let entries = vec![("api_key".to_owned(), "demo".to_owned())];
        assert_eq!(sample(&other).map(|sample| sample.entries), Some(entries));
    }

    #[test]
    fn without_a_denial_there_is_none() {
        assert_eq!(sample("domain: d\n"), None);
        assert_eq!(
            sample("domain: d\ndescriptors:\n- {key: a, rate_limit: {unlimited: true}}\n"),
            None
        );
    }
}
