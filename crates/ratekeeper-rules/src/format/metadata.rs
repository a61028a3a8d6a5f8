//! `metadata:` as JSON, the form in which it is answered.

use serde_json::{Map, Number, Value};

use crate::report::Report;
use crate::yaml::{Kind, Node, Pair, Resolved};

/// Converts the mapping to JSON. [`None`] if that is impossible, which has been reported.
pub(crate) fn parse_metadata(node: &Node, report: &mut Report<'_>) -> Option<Map<String, Value>> {
    let Some(pairs) = node.as_map() else {
        let message = format!("`metadata` must be a mapping, not {}", node.kind_name());
        report.error(node.mark, message, "write keys and values below it");
        return None;
    };
    object(pairs, report)
}

fn object(pairs: &[Pair], report: &mut Report<'_>) -> Option<Map<String, Value>> {
    let mut map = Map::new();
    let mut good = true;
    for pair in pairs {
        let key = match &pair.key.kind {
            Kind::Scalar(scalar) if scalar.resolved == Resolved::Text => &scalar.text,
            Kind::Scalar(scalar) => {
                let message = format!(
                    "error parsing metadata: the key {} is not text",
                    scalar.text
                );
                report.error(
                    pair.key.mark,
                    message,
                    format!("quote it: \"{}\"", scalar.text),
                );
                good = false;
                continue;
            }
            _ => {
                let message = format!("error parsing metadata: a key is {}", pair.key.kind_name());
                report.error(pair.key.mark, message, "write a name");
                good = false;
                continue;
            }
        };
        match value(&pair.value, report) {
            Some(value) => {
                map.insert(key.to_string(), value);
            }
            None => good = false,
        }
    }
    good.then_some(map)
}

fn value(node: &Node, report: &mut Report<'_>) -> Option<Value> {
    match &node.kind {
        Kind::Map(pairs) => object(pairs, report).map(Value::Object),
        Kind::List(items) => {
            let values: Vec<_> = items.iter().map(|item| value(item, report)).collect();
            values.into_iter().collect::<Option<_>>().map(Value::Array)
        }
        Kind::Scalar(scalar) => Some(match scalar.resolved {
            Resolved::Null => Value::Null,
            Resolved::Bool(flag) => Value::Bool(flag),
            Resolved::Int(int) => Value::from(int),
            Resolved::BigInt(int) => Value::from(int),
            // JSON has no infinity; Protobuf's JSON mapping writes it as text.
            Resolved::Float(float) => Number::from_f64(float).map_or_else(
                || Value::String(not_finite(float).to_owned()),
                Value::Number,
            ),
            Resolved::Text => Value::String(scalar.text.to_string()),
        }),
    }
}

const fn not_finite(float: f64) -> &'static str {
    if float.is_nan() {
        "NaN"
    } else if float.is_sign_negative() {
        "-Infinity"
    } else {
        "Infinity"
    }
}
