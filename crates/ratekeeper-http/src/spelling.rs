//! The one spelling of a path and of a host that rules, service levels and routes all go by, and the spellings that
//! services read in different ways.
//!
//! Whoever looks at a path or a host asks this module: two opinions about the same request are how a request gets past
//! a limit.

mod host;
mod path;

pub use host::host;
pub use path::{Ambiguity, has_dot_segments};
pub(crate) use path::{decode, path};

/// A path in one spelling, and why its readers may disagree about it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Spelt<'a> {
    pub(crate) path: std::borrow::Cow<'a, str>,
    pub(crate) odd: Odd,
}

/// What readers of a path disagree about.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Odd {
    /// It has an encoded slash or a backslash, which some take for a slash.
    pub(crate) slash: bool,
    /// The first thing besides.
    pub(crate) other: Option<Ambiguity>,
}

#[cfg(test)]
mod tests;
