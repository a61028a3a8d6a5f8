//! The kinds of values that only files of tests have.

use std::borrow::Cow;
use std::rc::Rc;

use ratekeeper_core::MAX_COUNT;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};

use super::Expect;
use crate::draft::quota::Duration;
use crate::entries;
use crate::format::mapping::Value;
use crate::format::values::with_doc;
use crate::mark::At;
use crate::report::Report;
use crate::table::{Typed, kinds};
use crate::test_values::{TIMES_MAX, TestAnswer, WaitTime};
use crate::yaml::{Kind, Node, Resolved, Scalar};

kinds! {
    /// The entries of a descriptor.
    EntryPairs: Vec<(Box<str>, Box<str>)>;
    /// Headers of a request; several values of one name as a list.
    HeaderPairs: Vec<(At<Box<str>>, Box<str>)>;
    /// Hits: negative ones give back.
    Hits: i64;
    /// A number of requests.
    Times: u64;
    /// A duration, or never.
    Wait: WaitTime;
    /// A word, or a mapping that is read later.
    ExpectForm: Rc<Node>;
}

impl Value for EntryPairs {
    type Schema = Self;

    fn read(key: &str, node: &Rc<Node>, report: &mut Report<'_>) -> Option<Self::Is> {
        if let Kind::Scalar(Scalar { text, .. }) = &node.kind {
            let parsed = entries::parse(text);
            let parsed = parsed.map_err(|error| report.error(node.mark, error.to_string(), None));
            let own = |(key, value): (String, String)| (key.into(), value.into());
            return Some(parsed.ok()?.into_iter().map(own).collect());
        }
        let pairs = text_pairs(key, node, "{ api_key: abc, path: /login }", report)?;
        Some(
            pairs
                .into_iter()
                .map(|(key, value)| (key.value, value))
                .collect(),
        )
    }
}

impl Value for HeaderPairs {
    type Schema = Self;

    fn read(key: &str, node: &Rc<Node>, report: &mut Report<'_>) -> Option<Self::Is> {
        text_pairs(key, node, "{ x-api-key: abc }", report)
    }
}

/// Keys, each with its place, and values.
type TextPairs = Vec<(At<Box<str>>, Box<str>)>;

/// The keys and values of a mapping from text to text. Messages show no value: it may be a secret.
fn text_pairs(key: &str, node: &Node, example: &str, report: &mut Report<'_>) -> Option<TextPairs> {
    let help = format!("write `{key}: {example}`");
    let Some(pairs) = node.as_map() else {
        let message = format!("`{key}` must be a mapping, not {}", node.kind_name());
        report.error(node.mark, message, help);
        return None;
    };
    let mut texts = Vec::new();
    for pair in pairs.iter().filter(|pair| !pair.stale) {
        let (Some(name), Some(value)) = (text_of(&pair.key), text_of(&pair.value)) else {
            let wrong = match text_of(&pair.key) {
                Some(_) => &pair.value,
                None => &pair.key,
            };
            let message = format!("`{key}` has texts, and {} is none", wrong.kind_name());
            report.error(wrong.mark, message, help.clone());
            return None;
        };
        texts.push((pair.key.at(name), value));
    }
    if texts.is_empty() {
        report.error(node.mark, format!("`{key}` is empty"), help);
        return None;
    }
    Some(texts)
}

/// The characters of a scalar that is something.
fn text_of(node: &Node) -> Option<Box<str>> {
    match &node.kind {
        Kind::Scalar(scalar) if !node.is_null() => Some(scalar.text.clone()),
        _ => None,
    }
}

impl Value for Hits {
    type Schema = Self;

    fn read(key: &str, node: &Rc<Node>, report: &mut Report<'_>) -> Option<i64> {
        let hits = match &node.kind {
            Kind::Scalar(Scalar {
                resolved: Resolved::Int(hits),
                ..
            }) if hits.unsigned_abs() <= MAX_COUNT => Some(*hits),
            _ => None,
        };
        if hits.is_none() {
            let message = format!("`{key}` is a whole number of at most {MAX_COUNT}");
            report.error(node.mark, message, format!("write `{key}: 1`"));
        }
        hits
    }
}

impl Value for Times {
    type Schema = Self;

    fn read(key: &str, node: &Rc<Node>, report: &mut Report<'_>) -> Option<u64> {
        let times = u64::read(key, node, report)?;
        if !(1..=TIMES_MAX).contains(&times) {
            let message = format!("`{key}` is a whole number from 1 to {TIMES_MAX}");
            report.error(node.mark, message, None);
            return None;
        }
        Some(times)
    }
}

/// The wait of a request that would never pass.
const NEVER: &str = "never";

impl Value for Wait {
    type Schema = Self;

    fn read(key: &str, node: &Rc<Node>, report: &mut Report<'_>) -> Option<WaitTime> {
        match &node.kind {
            Kind::Scalar(scalar) if *scalar.text == *NEVER => Some(WaitTime::Never),
            _ => Duration::read(key, node, report).map(WaitTime::After),
        }
    }
}

impl Value for ExpectForm {
    type Schema = Self;

    fn read(_: &str, node: &Rc<Node>, _: &mut Report<'_>) -> Option<Rc<Node>> {
        Some(Rc::clone(node))
    }
}

/// Declares the schemas of kinds.
macro_rules! schemas {
    ($($name:ident = |$generator:ident| $schema:tt;)*) => {
        $(impl JsonSchema for $name {
            fn schema_name() -> Cow<'static, str> {
                stringify!($name).into()
            }

            fn json_schema($generator: &mut SchemaGenerator) -> Schema {
                json_schema!($schema)
            }
        })*
    };
}

schemas! {
    EntryPairs = |_generator| {
        "description": "The entries of a descriptor, in their order.",
        "anyOf": [
            { "description": "Keys and values.", "type": "object", "minProperties": 1, "additionalProperties": scalar() },
            { "description": "key=value,key=value, as `rules explain` takes it.", "type": "string", "pattern": "=" },
        ],
    };
    HeaderPairs = |_generator| {
        "description": "Names and values of headers.",
        "type": "object",
        "minProperties": 1,
        "additionalProperties": scalar(),
    };
    Hits = |_generator| {
        "description": "Hits: 0 only looks, a negative number gives back.",
        "type": "integer",
        "minimum": -9_007_199_254_740_991_i64,
        "maximum": MAX_COUNT,
    };
    Times = |_generator| {
        "description": "A number of requests.",
        "type": "integer",
        "minimum": 1,
        "maximum": TIMES_MAX,
    };
    Wait = |generator| {
        "description": "A duration, or never.",
        "anyOf": [
            { "description": "No wait helps.", "type": "string", "const": NEVER },
            with_doc(generator.subschema_for::<Duration>(), "The wait."),
        ],
    };
    ExpectForm = |generator| {
        "description": "The answers that are expected.",
        "anyOf": [
            with_doc(generator.subschema_for::<TestAnswer>(), "The answer to every request."),
            with_doc(generator.subschema_for::<Expect>(), "The parts of the answers."),
        ],
    };
}

/// The schema of a value that is text.
fn scalar() -> serde_json::Value {
    serde_json::json!({ "type": ["string", "number", "boolean"] })
}
