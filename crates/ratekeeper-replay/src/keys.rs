//! Readable names of counters.

use std::fmt::Write;

use ratekeeper_rules::{Domain, Entry, Matched, Node, RuleIndex, RuleSet, secret};

/// Formats the entries that identify a rule's counter.
#[derive(Debug)]
pub(crate) struct Keys {
    /// By rule: true if a pattern on its path shares one counter between values.
    shares: Vec<bool>,
    text: String,
}

impl Keys {
    pub(crate) fn new(rules: &RuleSet, domain: &str) -> Self {
        let mut shares = vec![false; rules.rules().len()];
        if let Some(found) = rules.domain(domain) {
            found
                .nodes()
                .iter()
                .for_each(|node| mark_shared(node, false, &mut shares));
        }
        Self {
            shares,
            text: String::new(),
        }
    }

    /// `key=value,key=value` of the entries that `rule` depends on, with commas and backslashes
    /// escaped as `rules explain` takes them. A secret appears as its fingerprint, a shared pattern
    /// as the pattern.
    pub(crate) fn of(&mut self, rules: &RuleSet, rule: RuleIndex, entries: &[Entry<'_>]) -> &str {
        self.text.clear();
        let found = rules.rules().get(rule.get());
        let domain = found.and_then(|found| rules.domain(&found.domain));
        let depth = found.map_or(entries.len(), |found| found.path.len());
        let entries = entries.get(..depth).unwrap_or(entries);
        let shared = self.shares.get(rule.get()).copied().unwrap_or(false);
        let walk = domain.filter(|_| shared).map(|domain| domain.walk(entries));
        for (index, entry) in entries.iter().enumerate() {
            if index > 0 {
                self.text.push(',');
            }
            let visit = walk.as_ref().and_then(|walk| walk.get(index));
            match visit.filter(|visit| visit.how == Matched::Wildcard) {
                Some(visit) if visit.node.share_threshold() => {
                    let value = visit.node.value().unwrap_or_default();
                    // Writing to a string cannot fail.
                    let _ = write!(self.text, "{}={value}", visit.node.key());
                }
                _ => write_entry(&mut self.text, domain, entry),
            }
        }
        &self.text
    }
}

fn write_entry(text: &mut String, domain: Option<&Domain>, entry: &Entry<'_>) {
    text.push_str(entry.key);
    text.push('=');
    let is_secret = match domain {
        Some(domain) => domain.is_secret(entry.key),
        // Service levels have no domain here: these are their callers.
        None => secret::is_secret_by_default(entry.key),
    };
    if is_secret {
        text.push_str(&secret::fingerprint(entry.value));
    } else {
        for character in entry.value.chars() {
            if matches!(character, ',' | '\\') {
                text.push('\\');
            }
            text.push(character);
        }
    }
}

/// Marks the rules whose counters are shared. Recursion is as deep as the file nests, which loading
/// has bounded.
fn mark_shared(node: &Node, above: bool, shares: &mut [bool]) {
    let shared = above || node.share_threshold();
    let of_plans = node.by_plan().flat_map(|(_, rules)| rules);
    for rule in node.rules().iter().chain(of_plans) {
        if let Some(marked) = shares.get_mut(rule.get()) {
            *marked = shared;
        }
    }
    node.nodes()
        .iter()
        .for_each(|node| mark_shared(node, shared, shares));
}

#[cfg(test)]
mod tests {
    use ratekeeper_rules::{Options, Source, load};

    use super::*;

    const RULES: &str = "
domain: d
descriptors:
  - key: path
    value: /a*
    share_threshold: true
    rate_limit: { unit: minute, requests_per_unit: 1 }
  - key: path
    value: /b*
    rate_limit: { unit: minute, requests_per_unit: 1 }
    descriptors:
      - key: api_key
        rate_limit: { unit: minute, requests_per_unit: 1 }
";

    #[test]
    fn shared_patterns_secrets_and_commas() {
        let source = Source {
            name: "r.yaml".into(),
            text: RULES.into(),
        };
        let rules = load(&[source], &Options::default())
            .expect("good rules")
            .rules;
        let mut keys = Keys::new(&rules, "d");
        let path = |value| Entry { key: "path", value };
        assert_eq!(keys.of(&rules, RuleIndex(0), &[path("/abc")]), "path=/a*");
        assert_eq!(
            keys.of(&rules, RuleIndex(1), &[path("/b,\\")]),
            "path=/b\\,\\\\"
        );
        let api_key = Entry {
            key: "api_key",
            value: "0123456789abcdef",
        };
        let both = keys
            .of(&rules, RuleIndex(2), &[path("/b"), api_key])
            .to_owned();
        assert!(
            both.starts_with("path=/b,api_key=~") && both.ends_with("…cdef"),
            "{both}"
        );
        // A rule above the last entry does not depend on it.
        assert_eq!(
            keys.of(&rules, RuleIndex(1), &[path("/b"), api_key]),
            "path=/b"
        );
    }
}
