//! Patterns with a `*`.

use memchr::memmem::Finder;

use super::Composite;
use crate::{Entry, Evaluation};

/// The pattern of a node with a `*`.
#[derive(Debug)]
pub(crate) enum EntryPattern {
    /// Of key and value joined: a `*` may stand for the end of a key and the beginning of a value.
    Joined(Wildcard),
    /// Of the key, and of the value unless any value matches.
    Apart {
        key: TextPattern,
        value: Option<TextPattern>,
    },
}

impl EntryPattern {
    /// The pattern `composite` of a node whose key is `key`.
    pub(crate) fn new(composite: &str, key: &str, evaluation: Evaluation) -> Self {
        match evaluation {
            Evaluation::Leaf => Self::Joined(Wildcard::new(composite)),
            Evaluation::Path => Self::apart(key, composite.get(key.len() + 1..)),
        }
    }

    /// The pattern of a key and a value, compared each for itself.
    pub(crate) fn apart(key: &str, value: Option<&str>) -> Self {
        Self::Apart {
            key: TextPattern::new(key),
            value: value.map(TextPattern::new),
        }
    }

    /// Tests an entry.
    pub(crate) fn matches(&self, entry: &Entry<'_>) -> bool {
        match self {
            Self::Joined(pattern) => pattern.matches(&Composite::new(entry)),
            Self::Apart { key, value } => {
                let value = value.as_ref();
                key.matches(entry.key) && value.is_none_or(|value| value.matches(entry.value))
            }
        }
    }
}

/// The pattern of one text.
#[derive(Debug)]
pub(crate) struct TextPattern(Wildcard);

impl TextPattern {
    // A text is the value of a composite whose key is empty, and so stands behind an underscore.
    pub(crate) fn new(pattern: &str) -> Self {
        Self(Wildcard::new(&format!("_{pattern}")))
    }

    pub(crate) fn matches(&self, text: &str) -> bool {
        let alone = Entry {
            key: "",
            value: text,
        };
        self.0.matches(&Composite::new(&alone))
    }
}

/// A pattern in which each `*` stands for any number of characters.
#[derive(Debug)]
pub(crate) struct Wildcard {
    /// False for the folder of a pattern that ends in `/*`: `prefix` is all of it.
    has_stars: bool,
    prefix: Box<[u8]>,
    /// The parts between the stars; none is empty.
    middle: Box<[Finder<'static>]>,
    suffix: Box<[u8]>,
}

impl Wildcard {
    pub(crate) fn new(pattern: &str) -> Self {
        let mut parts = pattern.split('*');
        let prefix = parts.next().unwrap_or_default().as_bytes().into();
        let suffix = parts.next_back().unwrap_or_default().as_bytes().into();
        let middle = parts
            .filter(|part| !part.is_empty())
            .map(|part| Finder::new(part).into_owned());
        Self {
            has_stars: pattern.contains('*'),
            prefix,
            middle: middle.collect(),
            suffix,
        }
    }

    /// Tests a composite. Prefix and suffix are anchored; the parts between are found leftmost, in
    /// order. Leftmost is enough: a later place only leaves less room for the parts that follow.
    pub(crate) fn matches(&self, composite: &Composite<'_>) -> bool {
        if !self.has_stars {
            return composite.is(&self.prefix);
        }
        let length = composite.len();
        let mut from = self.prefix.len();
        let Some(end) = length.checked_sub(self.suffix.len()) else {
            return false;
        };
        if from > end || !composite.has_at(0, &self.prefix) || !composite.has_at(end, &self.suffix)
        {
            return false;
        }
        for part in &self.middle {
            let Some(at) = composite.find(part, from, end) else {
                return false;
            };
            from = at + part.needle().len();
        }
        true
    }
}
