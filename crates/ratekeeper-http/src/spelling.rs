//! Normalization of paths and hosts for rules, service levels and routes, and detection of
//! spellings that services read in different ways.
//!
//! All code that looks at a path or a host uses this module: two readings of the same request are
//! how a request evades a limit.

mod host;
mod path;

pub use host::host;
pub use path::{Ambiguity, has_dot_segments};
pub(crate) use path::{decode, path};

/// A normalized path, and the reasons why services may read it differently.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct NormalizedPath<'a> {
    pub(crate) path: std::borrow::Cow<'a, str>,
    pub(crate) ambiguities: Ambiguities,
}

/// The ambiguities of a path.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Ambiguities {
    /// It has an encoded slash or a backslash, which some services take for a slash.
    pub(crate) slash: bool,
    /// The first other ambiguity.
    pub(crate) other: Option<Ambiguity>,
}

#[cfg(test)]
mod tests;
