//! Words in settings.

use std::fmt;

/// A word that is none of those that were expected.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NeitherWord {
    /// The word.
    pub word: Box<str>,
    /// The words that have a meaning; at least two.
    pub expected: &'static [&'static str],
}

impl NeitherWord {
    pub(crate) fn new(word: &str, expected: &'static [&'static str]) -> Self {
        Self {
            word: word.into(),
            expected,
        }
    }
}

impl fmt::Display for NeitherWord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word = &self.word;
        let expected: Vec<_> = self
            .expected
            .iter()
            .map(|word| format!("`{word}`"))
            .collect();
        match expected.split_last() {
            Some((last, [first])) => write!(f, "`{word}` is neither {first} nor {last}"),
            Some((last, first)) => write!(f, "`{word}` is none of {} and {last}", first.join(", ")),
            None => write!(f, "`{word}` is not known"),
        }
    }
}

impl std::error::Error for NeitherWord {}
