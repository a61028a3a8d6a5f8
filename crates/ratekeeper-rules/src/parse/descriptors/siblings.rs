//! Mistakes that only all descriptors of one level show together: they load, and do something else
//! than their author meant.

use std::collections::BTreeSet;

use hashbrown::HashSet;

use crate::mark::Mark;
use crate::matching::EntryPattern;
use crate::{Entry, Evaluation, Position};

/// A descriptor, for comparison with the others of its level.
pub(super) struct Sibling {
    /// The file, and the position of the key in it.
    pub(super) file: usize,
    pub(super) mark: Mark,
    pub(super) place: Position,
    pub(super) key: Box<str>,
    pub(super) pattern: Box<str>,
    /// [`Self::pattern`] with a secret value replaced by its fingerprint.
    pub(super) shown: Box<str>,
    /// True if values of this key are secrets.
    pub(super) is_secret: bool,
    /// True if there is no limit here or below.
    pub(super) is_idle: bool,
}

/// A warning about a descriptor.
pub(super) struct Slip {
    pub(super) message: String,
    pub(super) help: String,
}

/// The most patterns compared with each other at one level: beyond that a check would take longer than
/// loading.
const COMPARED_MAX: usize = 1_000_000;

/// The descriptors of one level.
pub(super) struct Siblings<'a> {
    all: &'a [Sibling],
    evaluation: Evaluation,
    /// True if tenants may have limits of their own where there is no rule.
    has_tenants: bool,
    keys: BTreeSet<&'a str>,
    /// The keys without a value.
    bare: HashSet<&'a str>,
    /// Those with a `*`, by number, in the order of the files.
    wildcards: Vec<(usize, EntryPattern)>,
}

impl Sibling {
    fn value(&self) -> Option<&str> {
        self.pattern.get(self.key.len() + 1..)
    }

    fn has_star(&self) -> bool {
        self.pattern.contains('*')
    }

    fn entry(&self) -> Entry<'_> {
        Entry {
            key: &self.key,
            value: self.value().unwrap_or("*"),
        }
    }
}

impl<'a> Siblings<'a> {
    pub(super) fn new(all: &'a [Sibling], evaluation: Evaluation, has_tenants: bool) -> Self {
        let bare = all.iter().filter(|sibling| sibling.value().is_none());
        let patterns = all.iter().enumerate();
        let patterns = patterns.filter(|(_, sibling)| sibling.has_star());
        let pattern =
            |sibling: &Sibling| EntryPattern::new(&sibling.pattern, &sibling.key, evaluation);
        Self {
            all,
            evaluation,
            has_tenants,
            keys: all.iter().map(|sibling| &*sibling.key).collect(),
            bare: bare.map(|sibling| &*sibling.key).collect(),
            wildcards: patterns
                .map(|(number, sibling)| (number, pattern(sibling)))
                .collect(),
        }
    }

    /// Tells what is wrong with each of them.
    pub(super) fn check(&self, mut warn: impl FnMut(&Sibling, Slip)) {
        let mut left = COMPARED_MAX;
        for (number, sibling) in self.all.iter().enumerate() {
            left = left.saturating_sub(self.wildcards.len());
            let patterns = if left > 0 { &*self.wildcards } else { &[] };
            let slips = [
                self.star_in_key(sibling),
                self.other_key(sibling),
                self.never(number, sibling, patterns),
                self.idle(number, sibling, patterns),
            ];
            for slip in slips.into_iter().flatten() {
                warn(sibling, slip);
            }
        }
    }

    /// A `*` in a key, which many take for a literal one or for "any value".
    fn star_in_key(&self, sibling: &Sibling) -> Option<Slip> {
        let (before, _) = sibling.key.split_once('*')?;
        let message = match (self.evaluation, before) {
            (Evaluation::Path, _) => format!(
                "the `*` in the key stands for any characters: `{}` matches several keys",
                sibling.key
            ),
            (Evaluation::Leaf, "") => {
                "the `*` in the key stands for any characters of keys and values, and matches every key"
                    .to_owned()
            }
            (Evaluation::Leaf, before) => format!(
                "the `*` in the key stands for any characters of keys and values: `{}` also matches keys such as \
                 `{before}x`",
                sibling.key
            ),
        };
        let plain = sibling.key.replace('*', "");
        let plain = plain.trim_end_matches('_');
        let help = match plain {
            "" => "write a key; without `value:` it is for every value".to_owned(),
            plain => format!(
                "if you mean every value of one key, write `key: {plain}` without a value; if some of them, put the \
                 `*` into `value:`"
            ),
        };
        Some(Slip { message, help })
    }

    /// An entry of another key of this level whose composite, or whose key, is this pattern. Only key and
    /// value joined can be mistaken so.
    fn other_key(&self, sibling: &'a Sibling) -> Option<Slip> {
        if self.evaluation == Evaluation::Path || sibling.key.contains('*') {
            return None;
        }
        let (other, value) = self.mistaken(sibling)?;
        let value = match value {
            // It is a part of this descriptor's value.
            Some(_) if sibling.is_secret && sibling.value().is_some() => None,
            value => value,
        };
        let shown = &sibling.shown;
        let message = match value {
            Some(value) => format!(
                "key and value are joined by `_` to be matched: key `{other}` with value `{value}` finds '{shown}' as well"
            ),
            None => format!(
                "key and value are joined by `_` to be matched: entries of key `{other}` can find '{shown}' as well"
            ),
        };
        let renamed = match sibling.key.contains('_') {
            true => &*sibling.key,
            false => other,
        };
        let help = format!(
            "rename a key, such as `{renamed}` to `{}`; or write `evaluation: path`, under which keys and values are \
             matched apart",
            renamed.replace('_', "-")
        );
        Some(Slip { message, help })
    }

    /// The other key, and the value with which it is mistaken; [`None`] for any.
    fn mistaken(&self, sibling: &'a Sibling) -> Option<(&'a str, Option<String>)> {
        let fixed = sibling.pattern.split('*').next().unwrap_or_default();
        // `user` and `agent` of `user_agent`.
        for (at, _) in fixed.match_indices('_') {
            let (key, value) = (&fixed[..at], &sibling.pattern[at + 1..]);
            if let Some(other) = self.keys.get(key).filter(|other| ***other != *sibling.key) {
                return Some((other, Some(value.replace('*', "x"))));
            }
        }
        if !sibling.has_star() {
            // The key of an entry alone is looked up among all patterns.
            let same = self.keys.get(&*sibling.pattern);
            let same = same.filter(|other| ***other != *sibling.key);
            return same.map(|other| (*other, None));
        }
        // `api_*` begins all that key `api_key` joins.
        let longer = self.keys.range(fixed.trim_end_matches('_')..);
        let mut longer = longer.take_while(|other| other.starts_with(fixed.trim_end_matches('_')));
        let other = longer.find(|other| {
            let is_own = ***other == *sibling.key;
            !is_own && !other.contains('*') && format!("{other}_").starts_with(fixed)
        });
        other.map(|other| (*other, None))
    }

    /// A pattern after one that matches all that it does.
    fn never(
        &self,
        number: usize,
        sibling: &Sibling,
        patterns: &[(usize, EntryPattern)],
    ) -> Option<Slip> {
        let is_bare = sibling.value().is_none();
        if sibling.key.contains('*') || !(is_bare || sibling.has_star()) {
            return None;
        }
        // A `*` of this one is matched by a `*` of the other alone, which then matches all that it stands for.
        let all = sibling.entry();
        let earlier = patterns.iter().find(|(other, pattern)| {
            // A key alone is tried after all patterns.
            (*other < number || is_bare) && pattern.matches(&all)
        });
        let first = self.all.get(earlier?.0)?;
        let message = format!(
            "this never matches: '{}' at {} matches the same before it",
            first.shown, first.place
        );
        let help = match is_bare {
            true => "leave one of the two out",
            false => "put the narrower pattern first: the first one in the file that matches wins",
        };
        Some(Slip {
            message,
            help: help.to_owned(),
        })
    }

    /// A descriptor without a limit that keeps no entry from another one.
    fn idle(
        &self,
        number: usize,
        sibling: &Sibling,
        patterns: &[(usize, EntryPattern)],
    ) -> Option<Slip> {
        if !sibling.is_idle || self.has_tenants {
            return None;
        }
        let mut others = patterns.iter().filter(|(other, _)| *other != number);
        let is_among_others = match sibling.has_star() {
            // What two patterns have in common is not worked out.
            true => others.next().is_some(),
            false => others.any(|(_, pattern)| pattern.matches(&sibling.entry())),
        };
        let is_before_bare = sibling.value().is_some() && self.bare.contains(&*sibling.key);
        if is_among_others || is_before_bare {
            return None;
        }
        Some(Slip {
            message: format!("'{}' has no limit, and changes nothing", sibling.shown),
            help: "write `rate_limit: { window: 1m, limit: 100 }` into it, or leave it out"
                .to_owned(),
        })
    }
}
