//! Merging the lists of several nodes (Agarwal et al., "Mergeable Summaries", 2012): counts add up, and so do errors; a
//! node that does not list a key may have seen it as often as the first key that it left out.

use std::collections::HashMap;

use super::KeyList;
use crate::admin_json::KeyEntry;

/// Merges the lists of several nodes. The keys with the largest counts come first.
pub fn merge_keys<'a>(lists: impl Iterator<Item = &'a KeyList> + Clone) -> KeyList {
    let unlisted = lists.clone().map(|list| list.unlisted_max);
    let unlisted_max = unlisted.fold(0, u64::saturating_add);
    let mut sums: HashMap<(&str, &str, &str), KeyEntry> = HashMap::new();
    for list in lists {
        for key in &list.keys {
            let name = (&*key.domain, &*key.rule, &*key.key);
            // As if no node listed it, of which each that does takes its own part away.
            let sum = sums.entry(name).or_insert_with(|| KeyEntry {
                count: 0,
                error: unlisted_max,
                ..key.clone()
            });
            sum.count = sum.count.saturating_add(key.count);
            let rest = sum.error.saturating_sub(list.unlisted_max);
            sum.error = rest.saturating_add(key.error);
            sum.since = sum.since.min(key.since);
            if sum.subject.is_none() {
                sum.subject.clone_from(&key.subject);
            }
        }
    }
    let mut keys: Vec<_> = sums.into_values().collect();
    keys.sort_unstable_by(|a, b| (b.count, &a.rule, &a.key).cmp(&(a.count, &b.rule, &b.key)));
    KeyList { keys, unlisted_max }
}

#[cfg(test)]
mod tests {
    use super::super::TopOfNode;
    use super::*;
    use ratekeeper_limiter::{TopDecision, TopWindow};

    /// A node that lists these keys as denied in the last minute.
    fn node(name: &str, keys: &[(&str, u64, u64)], unlisted_max: u64) -> TopOfNode {
        let entry = |(key, count, error): &(&str, u64, u64)| {
            let since = count.saturating_add(1_000);
            ("d", "d.r", (*key).to_owned(), *count, *error, since)
        };
        let keys: Vec<_> = keys.iter().map(entry).collect();
        let none = r#"{"keys":[],"unlisted_max":0}"#;
        let keys = serde_json::to_string(&keys).expect("it is JSON");
        let text = format!(
            r#"{{"format":1,"node":"{name}","lists":[{{"keys":{keys},"unlisted_max":{unlisted_max}}},{none},{none},{none}]}}"#
        );
        TopOfNode::parse(&text).expect("a list")
    }

    fn merged(nodes: &[TopOfNode]) -> KeyList {
        let list = |node| TopOfNode::list(node, TopWindow::Minute, TopDecision::Denied);
        merge_keys(nodes.iter().map(list))
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
        assert_eq!(merged(&[]), KeyList::default());
    }
}
