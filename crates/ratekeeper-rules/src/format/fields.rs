//! The pairs of one mapping, with their keys checked.

mod keys;
pub(crate) mod number;

pub(crate) use keys::check_leaf;
use keys::{check_pair, first_keys, key_text, rate_help};

use super::mapping::{Shape, Value};
use crate::draft::Field;
use crate::mark::Mark;
use crate::report::Report;
use crate::yaml::{Kind, Node, Pair, Resolved};

/// A mapping whose keys have been checked.
#[derive(Clone, Copy)]
pub(crate) struct Fields<'t> {
    pairs: &'t [Pair],
    /// The mark of the first key, where the mapping starts.
    pub(crate) mark: Mark,
}

impl<'t> Fields<'t> {
    /// Checks the keys of `node`. [`None`] if it is not a mapping, which has been reported.
    pub(crate) fn new(node: &'t Node, shape: &Shape, report: &mut Report<'_>) -> Option<Self> {
        let Some(pairs) = node.as_map() else {
            let (place, kind) = (shape.place, node.kind_name());
            let message = format!("expected a mapping {place}, found {kind}");
            let help = rate_help(node, shape).or_else(|| first_keys(shape));
            report.error(node.mark, message, help);
            return None;
        };
        for at in 0..pairs.len() {
            check_pair(pairs, at, shape, report);
        }
        let mark = pairs.first().map_or(node.mark, |pair| pair.key.mark);
        Some(Self { pairs, mark })
    }

    /// An item of a list, which has to be a mapping; [`None`] if it is none, which has been reported.
    pub(crate) fn item(item: &'t Node, shape: &Shape, report: &mut Report<'_>) -> Option<Self> {
        if item.as_map().is_none() {
            not_a_map(item, report);
            return None;
        }
        Self::new(item, shape, report)
    }

    /// The value of `key` with its places.
    pub(crate) fn read<V: Value>(&self, key: &str, report: &mut Report<'_>) -> Field<V::Is> {
        let Some(pair) = self.pair(key) else {
            return Field::default();
        };
        let (key_mark, value) = (pair.key.mark, &pair.value);
        match value.is_null() {
            true => Field::written(key_mark, None, None),
            false => Field::written(key_mark, Some(value.mark), V::read(key, value, report)),
        }
    }

    /// The spelling and position of the null value of `key`.
    pub(crate) fn null(&self, key: &str) -> Option<(&'t str, Mark)> {
        let value = self.pair(key).map(|pair| &*pair.value)?;
        match &value.kind {
            Kind::Scalar(scalar) if scalar.resolved == Resolved::Null => {
                Some((&scalar.text, value.mark))
            }
            _ => None,
        }
    }

    /// Returns true if `shape` gives a meaning to no key of the mapping but those of `keys`.
    pub(crate) fn has_only(&self, keys: &[&str], shape: &Shape) -> bool {
        let mut written = self.pairs.iter().filter_map(key_text);
        written.all(|key| keys.contains(&key) || !(shape.has)(key))
    }

    fn pair(&self, key: &str) -> Option<&'t Pair> {
        self.pairs.iter().find(|pair| key_text(pair) == Some(key))
    }
}

/// Reports a list item that is not a mapping: envoyproxy/ratelimit accepts no other.
pub(crate) fn not_a_map(item: &Node, report: &mut Report<'_>) {
    // The message names the kind only: the text may be a secret in the wrong place.
    report.error(
        item.mark,
        format!("list of type other than map: {}", item.kind_name()),
        "each item has keys and values: `- key: value`",
    );
}
