//! Normalization of paths and hosts for rules, service levels and routes, and detection of
//! spellings that services read in different ways.
//!
//! All code that looks at a path or a host uses this module: two readings of the same request are
//! how a request evades a limit. A path is forwarded, routed and matched as it is normalized. Where
//! it is counted, it is also folded ([`PathFolding`]), since many services ignore case and a slash
//! at the end.

mod host;
mod path;

pub use host::host;
pub use path::{Ambiguity, has_dot_segments};
pub(crate) use path::{Plus, decode, path};

use std::borrow::Cow;

use ratekeeper_rules::{PathFolding, PathForm};

/// A normalized path, and the reasons why services may read it differently.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct NormalizedPath<'a> {
    pub(crate) path: Cow<'a, str>,
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

/// Folds a part of a path to the form under which it is counted.
pub(crate) fn folded(folding: PathFolding, form: PathForm, value: Cow<'_, str>) -> Cow<'_, str> {
    match value {
        Cow::Borrowed(value) => folding.fold(form, value),
        Cow::Owned(mut value) => {
            let changed = match folding.fold(form, &value) {
                Cow::Owned(folded) => Some(folded),
                Cow::Borrowed(kept) => {
                    let bytes = kept.len();
                    value.truncate(bytes);
                    None
                }
            };
            Cow::Owned(changed.unwrap_or(value))
        }
    }
}

#[cfg(test)]
mod tests;
