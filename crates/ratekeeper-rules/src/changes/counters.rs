//! The identity of a rule's counters, in words: where it differs, usage starts afresh.

use hashbrown::HashMap;

use crate::{Consistency, Node, Rule, RuleIndex, RuleLimit, RuleSet};

/// The patterns whose values are counted together, on the way to each rule that has any.
pub(super) struct SharedPatterns<'a>(HashMap<RuleIndex, Vec<&'a str>>);

impl<'a> SharedPatterns<'a> {
    pub(super) fn of(rules: &'a RuleSet) -> Self {
        let mut found = Self(HashMap::new());
        for domain in rules.domains() {
            found.add(domain.nodes(), &mut Vec::new());
        }
        found
    }

    fn add(&mut self, nodes: &'a [Node], above: &mut Vec<&'a str>) {
        for node in nodes {
            let depth = above.len();
            above.extend(node.share_threshold().then(|| node.pattern()));
            if !above.is_empty() {
                let of_plans = node.by_plan().flat_map(|(_, rules)| rules);
                for index in node.rules().iter().chain(of_plans) {
                    self.0.insert(*index, above.clone());
                }
            }
            self.add(node.nodes(), above);
            above.truncate(depth);
        }
    }

    /// The parts of the rule at `index` that identify its counters, in words.
    pub(super) fn counted(&self, index: RuleIndex, rule: &Rule) -> String {
        let mut parts = vec![limit_in_words(rule)];
        // What is on this node alone is in no store.
        match (rule.consistency, &rule.store) {
            (Some(Consistency::Local), _) => parts.push("on each node".to_owned()),
            (_, Some(store)) => parts.push(format!("in the store '{store}'")),
            _ => {}
        }
        let together = self.0.get(&index).into_iter().flatten();
        parts.extend(together.map(|pattern| format!("{pattern} counted together")));
        parts.join(", ")
    }
}

/// The parts of a limit that identify a counter, in words.
fn limit_in_words(rule: &Rule) -> String {
    match &rule.limit {
        RuleLimit::Unlimited => "unlimited".to_owned(),
        // A permit's timeout is not a window.
        RuleLimit::Limited(limit) if limit.algorithm().holds_permits() => {
            limit.algorithm().name().to_owned()
        }
        RuleLimit::Limited(limit) => {
            let name = limit.algorithm().name();
            let synced = match rule.sync_terms() {
                Some(_) => ", synced",
                None => "",
            };
            match limit.sub_windows() {
                0 => format!("{name} of {}{synced}", rule.window_text),
                parts => format!("{name} of {} in {parts} parts{synced}", rule.window_text),
            }
        }
    }
}
