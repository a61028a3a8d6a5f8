//! Descriptors without a limit, which take requests from the limits beside them.

use super::loosened::{is_key_of, is_path};
use ratekeeper_rules::{Domain, Node, Rule, RuleSet};

/// Says of each descriptor that has become free which limit held for its requests, of those for which `denies` returns true.
pub(super) fn taken(old: &RuleSet, new: &RuleSet, denies: impl Fn(&Rule) -> bool) -> Vec<String> {
    let mut warnings = Vec::new();
    for domain in new.domains() {
        let before = old.domain(domain.name()).map(paths).unwrap_or_default();
        let is_new = |path: &Vec<Box<str>>| !before.iter().any(|known| is_path(known, path));
        for path in paths(domain).into_iter().filter(is_new) {
            let mut rules = old.rules().iter();
            let held = rules.find(|rule| {
                let is_of_key = is_key_of(&rule.path, &path);
                *rule.domain == *domain.name() && is_of_key && denies(rule)
            });
            warnings.extend(held.map(|rule| {
                let (name, path, id) = (domain.name(), path.join("."), &rule.id);
                format!("{name}.{path}: new, without a limit; {id} held for its requests")
            }));
        }
    }
    warnings
}

/// The composite keys from the domain to each descriptor at which requests end without a limit. Secret values are hidden.
fn paths(domain: &Domain) -> Vec<Vec<Box<str>>> {
    let mut found = Vec::new();
    add(domain, &[], domain.nodes(), &mut found);
    found
}

fn add(domain: &Domain, above: &[Box<str>], nodes: &[Node], found: &mut Vec<Vec<Box<str>>>) {
    for node in nodes {
        let mut path = above.to_vec();
        path.push(domain.composite(node.key(), node.value()).into());
        let is_free = node.rules().is_empty() && node.by_plan().next().is_none();
        add(domain, &path, node.nodes(), found);
        // A node with others below it is no end of requests that have rules.
        if is_free && node.nodes().is_empty() {
            found.push(path);
        }
    }
}
