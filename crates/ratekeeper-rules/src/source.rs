//! The text of a file of rules.

/// The text of one file.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Source {
    /// The file's name in messages.
    pub name: String,
    /// The file's contents.
    pub text: String,
}
