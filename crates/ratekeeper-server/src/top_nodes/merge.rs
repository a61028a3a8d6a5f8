//! Merging the lists of several nodes (Agarwal et al., "Mergeable Summaries", 2012): counts add up, and so do errors; a
//! node that does not list a key may have seen it as often as the first key that it left out.

use std::collections::HashMap;
use std::time::Duration;

use ratekeeper_limiter::{TopDecision, TopWindow};

use super::list::{TopOfNode, TopOfWindow};

/// The top keys of several nodes.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Merged {
    /// The keys, the largest count first.
    pub(crate) keys: Vec<MergedKey>,
    /// The nodes whose lists are in there.
    pub(crate) nodes: Vec<MergedNode>,
    /// The most requests that a key may have had that is on no list.
    pub(crate) unlisted_max: u64,
}

/// A key of several nodes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct MergedKey {
    pub(crate) domain: Box<str>,
    pub(crate) rule: Box<str>,
    pub(crate) key: Box<str>,
    pub(crate) count: u64,
    /// The most by which `count` may be off.
    pub(crate) error: u64,
    /// The earliest start on any node, in seconds since 1970.
    pub(crate) since: u64,
}

/// A node whose lists were merged.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct MergedNode {
    pub(crate) name: String,
    /// The time since it laid out its lists.
    pub(crate) age: Duration,
}

/// Merges the lists of `nodes`, each with its age.
pub(crate) fn merge(
    nodes: &[(Duration, TopOfNode)],
    window: TopWindow,
    decision: TopDecision,
) -> Merged {
    let lists = || nodes.iter().map(|(_, node)| node.list(window, decision));
    let unlisted = |list: &TopOfWindow| list.unlisted_max;
    let unlisted_max = lists().map(unlisted).fold(0, u64::saturating_add);
    let mut sums: HashMap<(&str, &str, &str), (u64, u64, u64)> = HashMap::new();
    for list in lists() {
        for (domain, rule, key, count, error, since) in &list.keys {
            // As if no node listed it, of which each that does takes its own part away.
            let first = (0, unlisted_max, *since);
            let sum = sums.entry((domain, rule, key)).or_insert(first);
            sum.0 = sum.0.saturating_add(*count);
            let rest = sum.1.saturating_sub(list.unlisted_max);
            sum.1 = rest.saturating_add(*error);
            sum.2 = sum.2.min(*since);
        }
    }
    let keys = sums
        .into_iter()
        .map(|((domain, rule, key), (count, error, since))| MergedKey {
            domain: domain.into(),
            rule: rule.into(),
            key: key.into(),
            count,
            error,
            since,
        });
    let mut keys: Vec<_> = keys.collect();
    keys.sort_unstable_by(|a, b| (b.count, &a.rule, &a.key).cmp(&(a.count, &b.rule, &b.key)));
    let nodes = nodes.iter().map(|(age, node)| MergedNode {
        name: node.node.clone(),
        age: *age,
    });
    Merged {
        keys,
        nodes: nodes.collect(),
        unlisted_max,
    }
}

#[cfg(test)]
mod tests {
    use super::super::list::ListedKey;
    use super::*;

    /// A node that lists these keys as denied in the last minute.
    fn node(name: &str, keys: &[(&str, u64, u64)], unlisted_max: u64) -> (Duration, TopOfNode) {
        let entry = |(key, count, error): &(&str, u64, u64)| {
            let since = count.saturating_add(1_000);
            (
                "d".into(),
                "d.r".into(),
                Box::from(*key),
                *count,
                *error,
                since,
            )
        };
        let keys: Vec<ListedKey> = keys.iter().map(entry).collect();
        let none = r#"{"keys":[],"unlisted_max":0}"#;
        let keys = serde_json::to_string(&keys).expect("it is JSON");
        let text = format!(
            r#"{{"format":1,"node":"{name}","lists":[{{"keys":{keys},"unlisted_max":{unlisted_max}}},{none},{none},{none}]}}"#
        );
        let node = TopOfNode::parse(&text).expect("a list");
        (Duration::from_secs(1), node)
    }

    fn merged(nodes: &[(Duration, TopOfNode)]) -> Merged {
        merge(nodes, TopWindow::Minute, TopDecision::Denied)
    }

    #[test]
    fn counts_of_nodes_add_up() {
        let all = merged(&[
            node("a", &[("acme", 5, 0), ("beta", 4, 0)], 0),
            node("b", &[("beta", 3, 1)], 0),
        ]);
        let keys: Vec<_> = all
            .keys
            .iter()
            .map(|it| (&*it.key, it.count, it.error))
            .collect();
        assert_eq!(keys, [("beta", 7, 1), ("acme", 5, 0)]);
        assert_eq!(all.keys[0].since, 1_003, "the earlier of both");
        assert_eq!(all.unlisted_max, 0);
        let names: Vec<_> = all.nodes.iter().map(|node| &*node.name).collect();
        assert_eq!(names, ["a", "b"]);
    }

    #[test]
    fn a_node_that_does_not_list_a_key_may_have_seen_it() {
        let all = merged(&[
            node("a", &[("acme", 50, 0)], 10),
            node("b", &[("beta", 30, 2)], 20),
        ]);
        let keys: Vec<_> = all
            .keys
            .iter()
            .map(|it| (&*it.key, it.count, it.error))
            .collect();
        assert_eq!(keys, [("acme", 50, 20), ("beta", 30, 12)]);
        assert_eq!(all.unlisted_max, 30);
    }

    #[test]
    fn no_list_of_another_node_can_overflow_a_count() {
        let most = u64::MAX;
        let all = merged(&[
            node("a", &[("acme", most, most)], most),
            node("b", &[("acme", most, most)], most),
        ]);
        assert_eq!((all.keys[0].count, all.unlisted_max), (most, most));
        assert_eq!(merged(&[]), Merged::default());
    }
}
