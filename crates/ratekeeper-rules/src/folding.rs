//! Differences between paths that do not count: upper and lower case, and a slash at the end.
//!
//! Many services serve `/Orders/Export/` with the handler of `/orders/export`. A limit that takes
//! the two for different paths can be evaded. So values made from paths are folded before they are
//! matched and counted, and the values in rules find their nodes under the folded form as well.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

/// The differences between two paths that do not count.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PathFolding {
    /// `/Orders` is `/orders`.
    pub ignores_case: bool,
    /// `/orders/` is `/orders`.
    pub ignores_trailing_slash: bool,
}

/// Ignores both: at worst two resources share a counter, while the opposite mistake lets requests
/// pass a limit.
impl Default for PathFolding {
    fn default() -> Self {
        Self {
            ignores_case: true,
            ignores_trailing_slash: true,
        }
    }
}

/// The form of a path in the value of an entry.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum PathForm {
    /// The whole path: `/orders/export`.
    Path,
    /// The method, a space and the path: `POST /orders/export`.
    Endpoint,
    /// One segment: `orders`.
    Segment,
}

/// The keys of entries that are made from paths, and the forms of their values.
pub type PathKeys = BTreeMap<Box<str>, BTreeSet<PathForm>>;

impl PathFolding {
    /// Every difference counts.
    pub const NONE: Self = Self {
        ignores_case: false,
        ignores_trailing_slash: false,
    };

    /// Returns the form under which `value` is counted. Folding it again changes nothing. Allocates
    /// only where letters change.
    #[must_use]
    pub fn fold<'a>(self, form: PathForm, value: &'a str) -> Cow<'a, str> {
        match form {
            PathForm::Path => self.path(value),
            PathForm::Segment => self.case(value),
            PathForm::Endpoint => match value.split_once(' ') {
                None => Cow::Borrowed(value),
                Some((method, path)) => match self.path(path) {
                    // It is a beginning of what it was.
                    Cow::Borrowed(path) => {
                        let bytes = method.len() + 1 + path.len();
                        Cow::Borrowed(value.get(..bytes).unwrap_or(value))
                    }
                    Cow::Owned(path) => Cow::Owned(format!("{method} {path}")),
                },
            },
        }
    }

    /// Returns true if two segments are one.
    #[must_use]
    pub fn is_same(self, one: &str, other: &str) -> bool {
        one == other || (self.ignores_case && fold_case(one) == fold_case(other))
    }

    fn path(self, path: &str) -> Cow<'_, str> {
        let path = match path.trim_end_matches('/') {
            _ if !self.ignores_trailing_slash => path,
            // The root keeps its slash.
            "" => path.get(..1).unwrap_or(path),
            shorter => shorter,
        };
        self.case(path)
    }

    fn case(self, text: &str) -> Cow<'_, str> {
        match self.ignores_case {
            true => fold_case(text),
            false => Cow::Borrowed(text),
        }
    }

    /// The other patterns that a node with this pattern and key has for folded values of `keys`,
    /// each a composite of key and value as the pattern itself.
    pub(crate) fn aliases(self, pattern: &str, keys: &PathKeys) -> BTreeSet<String> {
        let mut aliases = BTreeSet::new();
        for (key, forms) in keys {
            let Some((key, value)) = split(pattern, key) else {
                continue;
            };
            let values = self.values(forms, value).into_iter();
            aliases.extend(values.map(|value| format!("{key}{value}")));
        }
        aliases.remove(pattern);
        aliases
    }

    /// The folded values that the value of a rule stands for, in each of the forms.
    fn values(self, forms: &BTreeSet<PathForm>, value: &str) -> BTreeSet<String> {
        let mut values = BTreeSet::new();
        for form in forms {
            let folded = self.pattern(*form, value);
            // A folded value stands for the path with a slash at its end as well.
            let folder = folded.trim_end_matches('*').strip_suffix('/');
            let is_folder = self.ignores_trailing_slash
                && *form != PathForm::Segment
                && folded.ends_with('*')
                && folder.is_some_and(|path| path.contains('/'));
            if let Some(folder) = folder.filter(|_| is_folder) {
                values.insert(folder.to_owned());
            }
            values.insert(folded);
        }
        values
    }

    /// Folds the value of a rule, in which an asterisk stands for any text.
    fn pattern(self, form: PathForm, value: &str) -> String {
        #[cfg(test)]
        FOLDED.set(FOLDED.get() + 1);
        let path_at = match form {
            PathForm::Path | PathForm::Segment => Some(0),
            // Methods are in capitals, and stay so. A pattern without a space has its method, or a
            // part of it, before the asterisk.
            PathForm::Endpoint => match value.find(' ') {
                Some(space) => Some(space + 1),
                None => value.find(['*', '/']),
            },
        };
        let (before, path) = value.split_at(path_at.unwrap_or(value.len()));
        let folded = match form {
            PathForm::Segment => self.case(path),
            PathForm::Path | PathForm::Endpoint => self.path(path),
        };
        format!("{before}{folded}")
    }
}

#[cfg(test)]
thread_local! {
    /// The values of rules and overrides that this thread has folded.
    pub(crate) static FOLDED: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
}

/// The keys of entries that are made from paths, and the differences between their values that do not count.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FoldedKeys<'a> {
    pub(crate) folding: PathFolding,
    pub(crate) keys: &'a PathKeys,
}

impl<'a> FoldedKeys<'a> {
    /// The other values that the value of an override stands for, where `is_key` tells the keys of its entry.
    pub(crate) fn values(self, is_key: impl Fn(&str) -> bool, value: &str) -> BTreeSet<String> {
        let keys = self.keys.iter().filter(|(key, _)| is_key(key));
        let mut values: BTreeSet<String> = keys
            .flat_map(|(_, forms)| self.folding.values(forms, value))
            .collect();
        values.remove(value);
        values
    }

    /// The folded forms of a value of the entry `key`, as rules write it.
    pub(crate) fn folded<'v>(
        self,
        key: &str,
        value: &'v str,
    ) -> impl Iterator<Item = String> + use<'a, 'v> {
        let forms = self.keys.get(key).into_iter().flatten();
        forms.map(move |form| self.folding.pattern(*form, value))
    }

    /// Returns true if two values of the entry `key` are one, as rules write them.
    pub(crate) fn is_same(self, key: &str, one: &str, other: &str) -> bool {
        let folded =
            |form: PathForm| self.folding.pattern(form, one) == self.folding.pattern(form, other);
        let forms = self.keys.get(key);
        one == other || forms.is_some_and(|forms| forms.iter().copied().any(folded))
    }
}

/// Splits the pattern of a node that may match entries with this key: key and underscore, and the
/// pattern of the value.
fn split<'a>(pattern: &'a str, key: &str) -> Option<(&'a str, &'a str)> {
    let of_key = pattern.strip_prefix(key);
    if let Some(value) = of_key.and_then(|rest| rest.strip_prefix('_')) {
        return Some(pattern.split_at(pattern.len() - value.len()));
    }
    // An asterisk in the key: the value begins at the slash, if not there.
    let star = pattern.find('*')?;
    let is_key = key.starts_with(pattern.get(..star)?);
    let slash = pattern.find('/').filter(|slash| *slash > star);
    is_key.then(|| pattern.split_at(slash.unwrap_or(star)))
}

/// Folds case: `ß`, `ẞ`, `SS` and `ss` are one, as are `ſ` and `s`, or `K` (the Kelvin sign) and
/// `k`. Services that ignore case differ in what they fold; this folds all that any of them does.
fn fold_case(text: &str) -> Cow<'_, str> {
    if text.is_ascii() {
        return match text.bytes().any(|byte| byte.is_ascii_uppercase()) {
            true => Cow::Owned(text.to_ascii_lowercase()),
            false => Cow::Borrowed(text),
        };
    }
    let small = |char: char| char.to_lowercase();
    let folded = |char: char| small(char).flat_map(char::to_uppercase).flat_map(small);
    Cow::Owned(text.chars().flat_map(folded).collect())
}

#[cfg(test)]
mod tests;
