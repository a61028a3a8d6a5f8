//! Typed access to the checked keys of one mapping.

mod keys;
mod number;

use std::rc::Rc;

use keys::{check_leaf, check_pair, first_keys, key_text, rate_help};
use ratekeeper_core::{Algorithm, MAX_COUNT, Micros};

use super::context::Context;
use super::nearest::nearest;
use crate::draft::Field;
use crate::report::Report;
use crate::yaml::{Kind, Mark, Node, Pair, Resolved, Scalar};
use crate::{AdjustMode, Consistency, Evaluation, FailureMode, LeakyOverRls, ShedMode};
use ratekeeper_core::duration::{DurationError, parse_duration};

/// A value and its position.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct At<T> {
    pub(crate) value: T,
    pub(crate) mark: Mark,
}

impl<T> At<T> {
    /// Another value at the same position.
    pub(crate) fn map<U>(self, change: impl FnOnce(T) -> U) -> At<U> {
        At {
            value: change(self.value),
            mark: self.mark,
        }
    }
}

impl At<Box<str>> {
    /// The same text, borrowed.
    pub(crate) fn as_str(&self) -> At<&str> {
        At {
            value: &self.value,
            mark: self.mark,
        }
    }
}

/// A mapping whose keys have been checked.
#[derive(Clone, Copy)]
pub(crate) struct Fields<'t> {
    pairs: &'t [Pair],
    /// The mark of the first key, where the mapping starts.
    pub(crate) mark: Mark,
}

impl<'t> Fields<'t> {
    /// Checks the keys of `node`. [`None`] if it is not a mapping, which has been reported.
    pub(crate) fn new(node: &'t Node, context: Context, report: &mut Report<'_>) -> Option<Self> {
        let Some(pairs) = node.as_map() else {
            let message = format!(
                "expected a mapping {}, found {}",
                context.name(),
                node.kind_name()
            );
            let help = rate_help(node, context).or_else(|| first_keys(context));
            report.error(node.mark, message, help);
            return None;
        };
        for at in 0..pairs.len() {
            check_pair(pairs, at, context, report);
        }
        let mark = pairs.first().map_or(node.mark, |pair| pair.key.mark);
        Some(Self { pairs, mark })
    }

    /// The value of `key`; [`None`] if it is missing or null.
    pub(crate) fn get(&self, key: &str) -> Option<&'t Node> {
        self.pair(key)
            .map(|pair| &*pair.value)
            .filter(|value| !value.is_null())
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

    /// The position of `key`.
    pub(crate) fn key_mark(&self, key: &str) -> Option<Mark> {
        self.pair(key).map(|pair| pair.key.mark)
    }

    pub(crate) fn has(&self, key: &str) -> bool {
        self.get(key).is_some()
    }

    /// Returns true if the value of `key` is that text, in any case.
    pub(crate) fn is(&self, key: &str, text: &str) -> bool {
        let value = self.get(key).map(|node| &node.kind);
        matches!(value, Some(Kind::Scalar(scalar)) if scalar.text.eq_ignore_ascii_case(text))
    }

    fn pair(&self, key: &str) -> Option<&'t Pair> {
        self.pairs.iter().find(|pair| key_text(pair) == Some(key))
    }

    /// A value as its literal text: numbers and booleans as they are written. Decimals and huge
    /// numbers, which envoyproxy/ratelimit does not accept as text, are refused.
    pub(crate) fn text(&self, key: &str, report: &mut Report<'_>) -> Option<At<&'t str>> {
        let node = self.get(key)?;
        let Kind::Scalar(scalar) = &node.kind else {
            let message = format!("`{key}` must be text, not {}", node.kind_name());
            report.error(node.mark, message, format!("write `{key}: some text`"));
            return None;
        };
        if !check_leaf(key, node, scalar, report) {
            return None;
        }
        Some(node.at(&*scalar.text))
    }

    pub(crate) fn boolean(&self, key: &str, report: &mut Report<'_>) -> Option<At<bool>> {
        let node = self.get(key)?;
        if let Kind::Scalar(Scalar {
            resolved: Resolved::Bool(value),
            ..
        }) = node.kind
        {
            return Some(node.at(value));
        }
        let message = format!("`{key}` must be true or false, not {}", node.kind_name());
        let quoted = matches!(&node.kind, Kind::Scalar(scalar) if scalar.text.eq_ignore_ascii_case("true")
            || scalar.text.eq_ignore_ascii_case("false"));
        let help = if quoted {
            "write it without quotes"
        } else {
            "write true or false"
        };
        report.error(node.mark, message, help);
        None
    }

    /// A whole number of 0 to `most`.
    pub(crate) fn count(&self, key: &str, most: u64, report: &mut Report<'_>) -> Option<At<u64>> {
        let node = self.get(key)?;
        let range = format!("a whole number from 0 to {most}");
        let (message, help) = match &node.kind {
            Kind::Scalar(Scalar {
                resolved: Resolved::Int(int),
                text,
                ..
            }) => match u64::try_from(*int).ok().filter(|&count| count <= most) {
                Some(value) => return Some(node.at(value)),
                None => (
                    format!("`{key}` is {range}, not {text}"),
                    too_large_help(key, *int),
                ),
            },
            Kind::Scalar(Scalar {
                resolved: Resolved::BigInt(_) | Resolved::Float(_),
                text,
                ..
            }) if text.bytes().all(|byte| byte.is_ascii_digit()) => (
                format!("`{key}` is {range}, not {text}"),
                Some(format!("write at most `{key}: {most}`")),
            ),
            Kind::Scalar(scalar) if scalar.text.parse::<u64>().is_ok() => (
                format!("`{key}` must be a number, not text"),
                Some("write it without quotes".to_owned()),
            ),
            _ => (
                format!("`{key}` must be {range}, not {}", node.kind_name()),
                number_help(key, node, most),
            ),
        };
        report.error(node.mark, message, help);
        None
    }

    /// A span of time: `10s`, `250ms`, `1h30m`.
    pub(crate) fn duration(&self, key: &str, report: &mut Report<'_>) -> Option<At<Micros>> {
        let node = self.get(key)?;
        let parsed = match &node.kind {
            Kind::Scalar(scalar) => parse_duration(&scalar.text).map_err(|error| error.to_string()),
            _ => Err("it must be a duration".to_owned()),
        };
        match parsed {
            Ok(value) => Some(node.at(value)),
            Err(why) => {
                report.error(
                    node.mark,
                    format!("`{key}` is not a duration: {why}"),
                    duration_help(key, node),
                );
                None
            }
        }
    }

    /// One of a fixed set of words.
    pub(crate) fn choice<T: Choice>(&self, key: &str, report: &mut Report<'_>) -> Option<At<T>> {
        let node = self.get(key)?;
        let written = match &node.kind {
            Kind::Scalar(scalar) => &*scalar.text,
            _ => node.kind_name(),
        };
        match choose(key, written) {
            Ok(value) => Some(node.at(value)),
            Err((message, help)) => {
                report.error(node.mark, message, help);
                None
            }
        }
    }

    /// The value of `key` with its places, as `read` understands it.
    pub(crate) fn read<T>(
        &self,
        key: &str,
        read: impl FnOnce(&Self, &mut Report<'_>) -> Option<T>,
        report: &mut Report<'_>,
    ) -> Field<T> {
        let Some(pair) = self.pair(key) else {
            return Field::default();
        };
        let mark = (!pair.value.is_null()).then_some(pair.value.mark);
        Field::written(pair.key.mark, mark, read(self, report))
    }

    pub(crate) fn read_text(&self, key: &str, report: &mut Report<'_>) -> Field<Box<str>> {
        let read = |fields: &Self, report: &mut Report<'_>| {
            let text = fields.text(key, report)?;
            Some(text.value.into())
        };
        self.read(key, read, report)
    }

    pub(crate) fn read_boolean(&self, key: &str, report: &mut Report<'_>) -> Field<bool> {
        let read =
            |fields: &Self, report: &mut Report<'_>| Some(fields.boolean(key, report)?.value);
        self.read(key, read, report)
    }

    pub(crate) fn read_count(&self, key: &str, most: u64, report: &mut Report<'_>) -> Field<u64> {
        let read =
            |fields: &Self, report: &mut Report<'_>| Some(fields.count(key, most, report)?.value);
        self.read(key, read, report)
    }

    pub(crate) fn read_duration(&self, key: &str, report: &mut Report<'_>) -> Field<Micros> {
        let read =
            |fields: &Self, report: &mut Report<'_>| Some(fields.duration(key, report)?.value);
        self.read(key, read, report)
    }

    /// A list of any items; [`None`] if it is missing, empty or not a list.
    pub(crate) fn list(&self, key: &str, report: &mut Report<'_>) -> Option<&'t [Rc<Node>]> {
        let node = self.get(key)?;
        if node.as_list().is_none() {
            let message = format!("`{key}` must be a list, not {}", node.kind_name());
            report.error(node.mark, message, "start each item with `- `");
        }
        node.as_list()
    }

    /// An item of a list, which has to be a mapping; [`None`] if it is none, which has been reported.
    pub(crate) fn item(item: &'t Node, context: Context, report: &mut Report<'_>) -> Option<Self> {
        if item.as_map().is_none() {
            not_a_map(item, report);
            return None;
        }
        Self::new(item, context, report)
    }

    /// A list of texts with their positions; items that are not text are reported and left out.
    pub(crate) fn texts(&self, key: &str, report: &mut Report<'_>) -> Vec<At<&'t str>> {
        let mut texts = Vec::new();
        for item in self.list(key, report).unwrap_or_default() {
            match &item.kind {
                Kind::Scalar(scalar) if !item.is_null() && !scalar.text.is_empty() => {
                    texts.push(item.at(&*scalar.text));
                }
                _ => {
                    let message = format!(
                        "`{key}` is a list of names, and {} is none",
                        item.kind_name()
                    );
                    report.error(item.mark, message, None);
                }
            }
        }
        texts
    }
}

/// The value that `written` names, or a message and its help.
pub(crate) fn choose<T: Choice>(key: &str, written: &str) -> Result<T, (String, String)> {
    let mut choices = T::CHOICES.iter().copied();
    if let Some(value) = choices.find(|choice| choice.word() == written) {
        return Ok(value);
    }
    let names: Vec<_> = T::CHOICES.iter().map(|choice| choice.word()).collect();
    let help = match nearest(written, names.iter().copied()) {
        Some(name) => format!("did you mean `{name}`?"),
        None => format!("write one of {}", names.join(", ")),
    };
    Err((format!("`{key}` cannot be '{written}'"), help))
}

/// A value that files name by a word.
pub(crate) trait Choice: Copy + 'static {
    const CHOICES: &'static [Self];

    fn word(self) -> &'static str;
}

macro_rules! choices {
    ($($type:ty),+) => {
        $(impl Choice for $type {
            const CHOICES: &'static [Self] = &Self::ALL;

            fn word(self) -> &'static str {
                self.name()
            }
        })+
    };
}

choices!(
    AdjustMode,
    Algorithm,
    Consistency,
    Evaluation,
    FailureMode,
    LeakyOverRls,
    ShedMode
);

fn too_large_help(key: &str, int: i64) -> Option<String> {
    match key {
        _ if int <= 0 => None,
        "requests_per_unit" => Some(format!(
            "write `limit:` instead: it goes up to {MAX_COUNT} (2^53 - 1)"
        )),
        _ => None,
    }
}

/// Suggests the number that a text stands for.
fn number_help(key: &str, node: &Node, most: u64) -> Option<String> {
    let Kind::Scalar(scalar) = &node.kind else {
        return None;
    };
    let is_count = matches!(key, "limit" | "requests_per_unit");
    if let Some((window, limit)) = number::rate(&scalar.text).filter(|_| is_count) {
        return Some(format!("write `window: {window}` and `limit: {limit}`"));
    }
    let meant = number::meant(&scalar.text).into_iter();
    let meant = meant.filter(|number| *number <= most);
    let meant: Vec<_> = meant.map(|number| format!("`{key}: {number}`")).collect();
    (!meant.is_empty()).then(|| format!("write {}", meant.join(" or ")))
}

/// The message and the help for a text that is no duration.
pub(crate) fn no_duration(key: &str, why: &DurationError) -> (String, String) {
    let message = format!("`{key}` is not a duration: {why}");
    let help = format!("write `{key}: 10s`; the units are us, ms, s, m, h, d and w");
    (message, help)
}

fn duration_help(key: &str, node: &Node) -> String {
    match &node.kind {
        Kind::Scalar(Scalar {
            resolved: Resolved::Int(seconds),
            ..
        }) if *seconds > 0 => {
            format!("say the unit: `{key}: {seconds}s`")
        }
        _ => format!("write `{key}: 10s`; the units are us, ms, s, m, h, d and w"),
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
