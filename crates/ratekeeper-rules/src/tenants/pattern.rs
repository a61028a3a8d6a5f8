//! The descriptor of an override: the entries after the tenant's.

use crate::folding::FoldedKeys;
use crate::matching::{EntryPattern, TextPattern};
use crate::{Entry, Matched, Visit};

/// The entries that an override is for; none for the tenant as a whole.
#[derive(Debug)]
pub(crate) struct Pattern {
    parts: Box<[Part]>,
}

#[derive(Debug)]
struct Part {
    written: EntryMatcher,
    /// The same for folded values: values made from paths are, and those that callers bring may not be.
    folded: Box<[EntryMatcher]>,
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
    pub(crate) fn new<'a>(
        parts: impl Iterator<Item = (&'a str, Option<&'a str>)>,
        paths: Option<FoldedKeys<'_>>,
    ) -> Self {
        let part = |(key, value)| Part::new(key, value, paths);
        Self {
            parts: parts.map(part).collect(),
        }
    }

    /// Orders patterns of as many entries: the more specific comes first.
    pub(crate) fn ranks(&self) -> Vec<u8> {
        self.parts.iter().map(|part| part.written.rank()).collect()
    }

    /// The first that is `found` with its pattern. Two overrides may be of one path: of those that are as specific, the one that
    /// is written as paths are folded comes first.
    pub(crate) fn first<'p, T>(mut found: impl Iterator<Item = (&'p Self, T)>) -> Option<T> {
        let (pattern, first) = found.next()?;
        if pattern.is_folded() {
            return Some(first);
        }
        let others = found.take_while(|(other, _)| other.is_as_specific(pattern));
        let mut folded = others.filter(|(other, _)| other.is_folded());
        Some(folded.next().map_or(first, |(_, other)| other))
    }

    fn is_folded(&self) -> bool {
        self.parts.iter().all(|part| part.folded.is_empty())
    }

    fn is_as_specific(&self, other: &Self) -> bool {
        let own = self.parts.iter().map(|part| part.written.rank());
        let others = other.parts.iter().map(|part| part.written.rank());
        own.eq(others)
    }

    /// The entries that match, if there is only one list of them, as they are made from paths; none for the tenant as a whole.
    pub(crate) fn exact_entries(&self) -> Option<Vec<Entry<'_>>> {
        self.parts.iter().map(Part::entry).collect()
    }

    /// Returns true if all `entries` match, and none of their nodes matched more specifically.
    pub(crate) fn matches(&self, entries: &[Entry<'_>], visits: &[Visit<'_>]) -> bool {
        let no_closer = |number: usize, part: &Part| {
            let visit = visits.get(number);
            visit.is_none_or(|visit| part.written.rank() <= rank(visit.how))
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

impl Part {
    fn new(key: &str, value: Option<&str>, paths: Option<FoldedKeys<'_>>) -> Self {
        let has_star = |text: &str| text.contains('*');
        let is_wild = has_star(key) || value.is_some_and(has_star);
        let matcher = |value: Option<&str>| match value {
            value if is_wild => EntryMatcher::Wildcard(Box::new(EntryPattern::apart(key, value))),
            Some(value) => EntryMatcher::Exact(key.into(), value.into()),
            None => EntryMatcher::KeyOnly(key.into()),
        };
        let keys = TextPattern::new(key);
        let folded = paths.zip(value).map(|(paths, value)| {
            let folded = paths.values(|key| keys.matches(key), value);
            folded.iter().map(|value| matcher(Some(value))).collect()
        });
        Self {
            written: matcher(value),
            folded: folded.unwrap_or_default(),
        }
    }

    fn entry(&self) -> Option<Entry<'_>> {
        self.folded.first().unwrap_or(&self.written).entry()
    }

    fn matches(&self, entry: &Entry<'_>) -> bool {
        self.written.matches(entry) || self.folded.iter().any(|folded| folded.matches(entry))
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
