//! The top keys of one node, as it lays them out for the others.

use ratekeeper_core::Timestamp;
use ratekeeper_core::formats::TOP_KEYS;
use ratekeeper_limiter::{TopDecision, TopKey, TopKeys, TopWindow};
use serde::{Deserialize, Serialize};

use super::cases::CaseList;
use crate::admin_json::KeyEntry;

/// The most keys of a list.
const KEYS_MAX: usize = 64;

const MICROS_PER_SECOND: u64 = 1_000_000;

/// The most bytes of a key that is laid out.
const KEY_BYTES_MAX: usize = 512;

/// The lists of a node.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct TopOfNode {
    /// The version of the format.
    format: u32,
    /// The name of the node.
    pub(crate) node: String,
    /// Denials of the last minute, those of the last hour, and likewise what was allowed.
    lists: [KeyList; 4],
    /// Those that would have been denied in the last minute, and in the last hour.
    #[serde(default)]
    shadowed: [KeyList; 2],
    /// The tenants that were denied in the last hour, by rule.
    #[serde(default)]
    pub(crate) cases: CaseList,
}

/// The keys of one window and decision.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(from = "WrittenList", into = "WrittenList")]
pub struct KeyList {
    /// The keys with the most requests.
    pub keys: Vec<KeyEntry>,
    /// The most requests that a key may have had that is not listed.
    pub unlisted_max: u64,
}

/// A list as it is laid out.
#[derive(Serialize, Deserialize)]
struct WrittenList {
    /// Keys without the names of their fields, so that lists are short.
    keys: Vec<WrittenKey>,
    unlisted_max: u64,
    /// The subjects of the keys. Nodes of the version before write none, and read none.
    #[serde(default)]
    subjects: Vec<Option<Box<str>>>,
}

type WrittenKey = (Box<str>, Box<str>, Box<str>, u64, u64, u64);

impl From<WrittenList> for KeyList {
    fn from(written: WrittenList) -> Self {
        let subjects = written.subjects.into_iter().chain(std::iter::repeat(None));
        let keys = written.keys.into_iter().zip(subjects);
        let entry =
            |((domain, rule, key, count, error, since), subject): (WrittenKey, _)| KeyEntry {
                domain,
                rule,
                key,
                subject,
                count,
                error,
                since,
            };
        Self {
            keys: keys.map(entry).collect(),
            unlisted_max: written.unlisted_max,
        }
    }
}

impl From<KeyList> for WrittenList {
    fn from(list: KeyList) -> Self {
        let written = |it: KeyEntry| {
            let key = (it.domain, it.rule, it.key, it.count, it.error, it.since);
            (key, it.subject)
        };
        let (keys, subjects) = list.keys.into_iter().map(written).unzip();
        Self {
            keys,
            unlisted_max: list.unlisted_max,
            subjects,
        }
    }
}

const SHADOWED: [(TopWindow, TopDecision); 2] = [
    (TopWindow::Minute, TopDecision::Shadowed),
    (TopWindow::Hour, TopDecision::Shadowed),
];

const LISTS: [(TopWindow, TopDecision); 4] = [
    (TopWindow::Minute, TopDecision::Denied),
    (TopWindow::Hour, TopDecision::Denied),
    (TopWindow::Minute, TopDecision::Allowed),
    (TopWindow::Hour, TopDecision::Allowed),
];

impl TopOfNode {
    /// The lists of this node at the time `now`.
    pub(crate) fn read(top: &TopKeys, node: &str, now: Timestamp) -> Self {
        Self {
            format: TOP_KEYS.version,
            node: node.to_owned(),
            lists: LISTS.map(|list| KeyList::read(top, list, KEYS_MAX)),
            shadowed: SHADOWED.map(|list| KeyList::read(top, list, KEYS_MAX)),
            cases: CaseList::fair(top.cases(now, |_| true)),
        }
    }

    /// The lists that another node laid out; [`None`] if they cannot be read, as those of a newer version may not.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let mut node: Self = serde_json::from_str(text).ok()?;
        TOP_KEYS.check(node.format).ok()?;
        for list in node.lists.iter_mut().chain(&mut node.shadowed) {
            list.keys.truncate(KEYS_MAX);
            let is_short = |text: &str| text.len() <= KEY_BYTES_MAX;
            let is_bounded =
                |it: &KeyEntry| is_short(&it.key) && it.subject.as_deref().is_none_or(is_short);
            list.keys.retain(is_bounded);
        }
        node.cases.bound();
        Some(node)
    }

    pub(crate) fn into_text(self) -> String {
        // Strings and numbers alone: nothing in there can fail.
        serde_json::to_string(&self).unwrap_or_default()
    }

    pub(crate) fn list(&self, window: TopWindow, decision: TopDecision) -> &KeyList {
        let [minute_denied, hour_denied, minute_allowed, hour_allowed] = &self.lists;
        let [minute_shadowed, hour_shadowed] = &self.shadowed;
        match (window, decision) {
            (TopWindow::Minute, TopDecision::Denied) => minute_denied,
            (TopWindow::Hour, TopDecision::Denied) => hour_denied,
            (TopWindow::Minute, TopDecision::Allowed) => minute_allowed,
            (TopWindow::Hour, TopDecision::Allowed) => hour_allowed,
            (TopWindow::Minute, TopDecision::Shadowed) => minute_shadowed,
            (TopWindow::Hour, TopDecision::Shadowed) => hour_shadowed,
        }
    }
}

impl KeyList {
    /// The `most` keys of this window and decision.
    pub(crate) fn read(top: &TopKeys, list: (TopWindow, TopDecision), most: usize) -> Self {
        let (window, decision) = list;
        // One more, to see whether all are listed.
        let keys = top.top(window, decision, most + 1, |_, _| true);
        Self::new(keys, most, top.dropped(window, decision))
    }

    fn new(keys: Vec<TopKey>, most: usize, dropped: u64) -> Self {
        let cut = keys.get(most).map_or(0, |key| key.count);
        Self {
            keys: keys.into_iter().take(most).map(KeyEntry::from).collect(),
            unlisted_max: cut.max(dropped),
        }
    }
}

impl From<TopKey> for KeyEntry {
    fn from(top: TopKey) -> Self {
        Self {
            domain: (*top.domain).into(),
            rule: (*top.rule).into(),
            key: (*top.key).into(),
            subject: top.subject.as_deref().map(Into::into),
            count: top.count,
            error: top.error,
            since: top.since.as_micros() / MICROS_PER_SECOND,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ratekeeper_core::Timestamp;

    #[test]
    fn a_list_says_what_it_leaves_out() {
        let key = |number: u64| TopKey {
            domain: "d".into(),
            rule: "d.r".into(),
            key: number.to_string().into(),
            subject: (number > 1).then(|| format!("customer:{number}").into()),
            count: number,
            error: 0,
            since: Timestamp::from_secs(1_800_000_000),
        };
        let keys = |most: u64| (1..=most).rev().map(key).collect::<Vec<_>>();
        let all = KeyList::new(keys(64), KEYS_MAX, 0);
        assert_eq!((all.keys.len(), all.unlisted_max), (64, 0));
        assert_eq!(all.keys[0].since, 1_800_000_000);
        let cut = KeyList::new(keys(65), KEYS_MAX, 0);
        assert_eq!((cut.keys.len(), cut.unlisted_max), (64, 1));
        assert_eq!(KeyList::new(keys(65), KEYS_MAX, 7).unlisted_max, 7);
        // Other nodes read the tenants too.
        let text = serde_json::to_string(&all).expect("it is JSON");
        assert_eq!(serde_json::from_str::<KeyList>(&text).ok(), Some(all));
    }

    #[test]
    fn lists_are_read_as_they_were_written() {
        let node = TopOfNode::read(&TopKeys::default(), "edge-1", Timestamp::from_secs(1));
        let text = node.clone().into_text();
        assert_eq!(TopOfNode::parse(&text), Some(node));
        let later = text.replace("{\"format\":1,", "{\"format\":2,");
        assert_eq!(TopOfNode::parse(&later), None, "{later}");
        // A node of the version before tells no cases.
        let before = text.split(",\"shadowed\"").next().unwrap_or_default();
        let before = TopOfNode::parse(&format!("{before}}}"));
        assert_eq!(before.map(|node| node.node).as_deref(), Some("edge-1"));
        for bad in ["", "{}", "[]", "{\"node\":\"a\",\"lists\":[]}"] {
            assert_eq!(TopOfNode::parse(bad), None, "{bad}");
        }
    }
}
