//! The descriptor of an override: the entries after the tenant's.

use crate::matching::EntryPattern;
use crate::{Entry, Matched, Visit};

/// The entries that an override is for; none for the tenant as a whole.
#[derive(Debug)]
pub(crate) struct Pattern {
    parts: Box<[EntryMatcher]>,
}

#[derive(Debug)]
enum EntryMatcher {
    /// Key and value.
    Exact(Box<str>, Box<str>),
    /// Key and value with `*` in them. They are compared apart, however nodes are matched: an override is
    /// for the entry that it names.
    Wildcard(Box<EntryPattern>),
    /// A key; each value has its own counter.
    KeyOnly(Box<str>),
}

impl Pattern {
    /// The pattern of some keys with their values.
    pub(crate) fn new<'a>(parts: impl Iterator<Item = (&'a str, Option<&'a str>)>) -> Self {
        let has_star = |text: &str| text.contains('*');
        let part = |(key, value): (&str, Option<&str>)| match value {
            value if has_star(key) || value.is_some_and(has_star) => {
                EntryMatcher::Wildcard(Box::new(EntryPattern::apart(key, value)))
            }
            Some(value) => EntryMatcher::Exact(key.into(), value.into()),
            None => EntryMatcher::KeyOnly(key.into()),
        };
        Self {
            parts: parts.map(part).collect(),
        }
    }

    /// Orders patterns of as many entries: the more specific comes first.
    pub(crate) fn ranks(&self) -> Vec<u8> {
        self.parts.iter().map(EntryMatcher::rank).collect()
    }

    /// The entries that match, if there is only one list of them; none for the tenant as a whole.
    pub(crate) fn exact_entries(&self) -> Option<Vec<Entry<'_>>> {
        self.parts.iter().map(EntryMatcher::entry).collect()
    }

    /// Returns true if all `entries` match, and none of their nodes matched more specifically.
    pub(crate) fn matches(&self, entries: &[Entry<'_>], visits: &[Visit<'_>]) -> bool {
        let no_closer = |number: usize, part: &EntryMatcher| {
            let visit = visits.get(number);
            visit.is_none_or(|visit| part.rank() <= rank(visit.how))
        };
        self.parts.len() == entries.len()
            && self
                .parts
                .iter()
                .zip(entries)
                .enumerate()
                .all(|(number, (part, entry))| part.matches(entry) && no_closer(number, part))
    }
}

impl EntryMatcher {
    const fn rank(&self) -> u8 {
        match self {
            Self::Exact(..) => rank(Matched::Exact),
            Self::Wildcard(_) => rank(Matched::Wildcard),
            Self::KeyOnly(_) => rank(Matched::KeyOnly),
        }
    }

    fn entry(&self) -> Option<Entry<'_>> {
        match self {
            Self::Exact(key, value) => Some(Entry { key, value }),
            Self::Wildcard(_) | Self::KeyOnly(_) => None,
        }
    }

    fn matches(&self, entry: &Entry<'_>) -> bool {
        match self {
            Self::Exact(key, value) => **key == *entry.key && **value == *entry.value,
            Self::Wildcard(pattern) => pattern.matches(entry),
            Self::KeyOnly(key) => **key == *entry.key,
        }
    }
}

/// Orders the ways to match, the most specific first.
const fn rank(how: Matched) -> u8 {
    match how {
        Matched::Exact => 0,
        Matched::Wildcard => 1,
        Matched::KeyOnly => 2,
    }
}
