//! Words in settings.

/// A word that is none of the two that were expected.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("`{word}` is neither `{}` nor `{}`", .expected[0], .expected[1])]
pub struct NeitherWord {
    /// The word.
    pub word: Box<str>,
    /// The words that have a meaning.
    pub expected: [&'static str; 2],
}

impl NeitherWord {
    pub(crate) fn new(word: &str, expected: [&'static str; 2]) -> Self {
        Self {
            word: word.into(),
            expected,
        }
    }
}
