//! Settings whose value is a list or a mapping.
//!
//! Such a value becomes JSON before it is parsed further, in every layer: a settings file may write it over
//! many lines, a variable or a flag writes it in YAML's flow style or as JSON.

use saphyr_parser::{Event, Parser, ScalarStyle, ScanError, Span, StrInput};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

/// The deepest that a value may be nested.
const DEPTH_MAX: usize = 16;

/// The parser that values are read from.
pub(super) type Events<'a> = Parser<'a, StrInput<'a>>;

/// The fault of a nested value.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NestedError {
    #[error("this is not YAML: {}", .0.info())]
    NotYaml(ScanError),
    #[error("expected a value")]
    Nothing,
    #[error("expected one value")]
    Several,
    #[error("the value does not end")]
    Unended,
    #[error("it is nested deeper than {DEPTH_MAX} levels")]
    TooDeep,
    #[error("expected a key")]
    NotAKey,
    #[error("`{0}` is set twice: keep one of the two")]
    Duplicate(Box<str>),
    #[error("aliases are not supported here: write the value out")]
    Alias,
    #[error("{expected}{}", without_value(.error))]
    Whole {
        /// The beginning of the message, such as `expected a list: `.
        expected: &'static str,
        error: serde_json::Error,
    },
    #[error("{path}: {}", without_value(.error))]
    Field {
        path: Box<str>,
        error: serde_json::Error,
    },
}

/// The place of a fault, and the fault.
pub(super) type Fault = (Span, NestedError);

/// Parses the value of a variable or a flag, or one that was read before.
///
/// # Errors
/// It is not YAML, or not one value.
pub(crate) fn parse(text: &str) -> Result<Value, NestedError> {
    let mut events = Parser::new_from_str(text);
    let mut value = None;
    while let Some(event) = events.next_event() {
        let (event, span) = event.map_err(NestedError::NotYaml)?;
        match event {
            Event::Scalar(..) | Event::SequenceStart(..) | Event::MappingStart(..)
                if value.is_none() =>
            {
                let read = read(&mut events, event, span);
                value = Some(read.map_err(|(_, error)| error)?);
            }
            Event::Scalar(..)
            | Event::SequenceStart(..)
            | Event::MappingStart(..)
            | Event::Alias(_) => {
                return Err(NestedError::Several);
            }
            _ => {}
        }
    }
    value.ok_or(NestedError::Nothing)
}

/// Reads the value that `event` begins to its end.
///
/// # Errors
/// It is not YAML, is nested too deeply, or has an alias, a duplicate key or a key that is not text.
pub(super) fn read<'a>(
    events: &mut Events<'a>,
    event: Event<'a>,
    span: Span,
) -> Result<Value, Fault> {
    value(events, event, span, 0)
}

/// Deserializes a nested value. An error names the path of the field that is invalid, or begins with
/// `expected` where that is the whole value.
///
/// # Errors
/// [`NestedError::Whole`] and [`NestedError::Field`].
pub(super) fn deserialize<T: DeserializeOwned>(
    value: Value,
    expected: &'static str,
) -> Result<T, NestedError> {
    serde_path_to_error::deserialize(value).map_err(|error| {
        let path = error.path().to_string();
        let error = error.into_inner();
        match path.as_str() {
            "." => NestedError::Whole { expected, error },
            path => NestedError::Field {
                path: path.into(),
                error,
            },
        }
    })
}

/// The message of `error` without the value that has the wrong type: that may be a secret, such as an API key beside
/// `known:` that is no list.
fn without_value(error: &serde_json::Error) -> String {
    let message = error.to_string();
    // A value may hold the words that follow it.
    let rest = message.strip_prefix("invalid type: ");
    let Some((value, expected)) = rest.and_then(|rest| rest.rsplit_once(", expected ")) else {
        return message;
    };
    let kind = match value.split_whitespace().next() {
        Some("string") => "text",
        Some("integer" | "floating") => "a number",
        Some("boolean") => "true or false",
        Some("sequence") => "a list",
        Some("map") => "a mapping",
        Some("null") => "nothing",
        _ => "another kind of value",
    };
    let expected = match expected {
        "a sequence" => "a list is expected, as in [one, two]",
        "a string" => "text is expected; a number needs quotes for that",
        "a boolean" => "true or false is expected",
        expected if expected.starts_with("struct ") || expected == "a map" => {
            "a mapping is expected, as in { key: value }"
        }
        expected => return format!("this is {kind}, and not {expected}"),
    };
    format!("this is {kind}, where {expected}")
}

fn value<'a>(
    events: &mut Events<'a>,
    event: Event<'a>,
    span: Span,
    depth: usize,
) -> Result<Value, Fault> {
    if depth > DEPTH_MAX {
        return Err((span, NestedError::TooDeep));
    }
    match event {
        Event::Scalar(text, style, ..) => Ok(scalar(&text, style)),
        Event::SequenceStart(..) => {
            let mut list = Vec::new();
            loop {
                let (event, span) = next(events, span)?;
                if event == Event::SequenceEnd {
                    return Ok(Value::Array(list));
                }
                list.push(value(events, event, span, depth + 1)?);
            }
        }
        Event::MappingStart(..) => {
            let mut map = Map::new();
            loop {
                let (key, at) = next(events, span)?;
                let key = match key {
                    Event::MappingEnd => return Ok(Value::Object(map)),
                    Event::Scalar(key, ..) => key.into_owned(),
                    _ => return Err((at, NestedError::NotAKey)),
                };
                let (event, span) = next(events, at)?;
                let value = value(events, event, span, depth + 1)?;
                if map.insert(key.clone(), value).is_some() {
                    return Err((at, NestedError::Duplicate(key.into())));
                }
            }
        }
        _ => Err((span, NestedError::Alias)),
    }
}

fn next<'a>(events: &mut Events<'a>, after: Span) -> Result<(Event<'a>, Span), Fault> {
    match events.next_event() {
        Some(Ok(event)) => Ok(event),
        Some(Err(error)) => Err((Span::empty(*error.marker()), NestedError::NotYaml(error))),
        None => Err((after, NestedError::Unended)),
    }
}

/// As YAML's core schema has it, of which only switches and whole numbers are used.
fn scalar(text: &str, style: ScalarStyle) -> Value {
    if style != ScalarStyle::Plain {
        return text.into();
    }
    match text {
        "" | "~" | "null" => Value::Null,
        "true" => true.into(),
        "false" => false.into(),
        // Written otherwise it is text: 007, +1, 1_000.
        _ => match text.parse::<i64>() {
            Ok(number) if number.to_string() == text => number.into(),
            _ => text.into(),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::parse;
    use serde_json::json;

    #[test]
    fn yaml_and_json_are_one_value() {
        let wanted = json!({ "a": [1, true, null, "007", "1.5", "yes"], "b": { "c": "x y" } });
        let block = "a:\n- 1\n- true\n-\n- 007\n- 1.5\n- yes\nb:\n  c: x y\n";
        assert_eq!(parse(block).ok(), Some(wanted.clone()));
        assert_eq!(
            parse("{a: [1, true, ~, 007, 1.5, 'yes'], b: {c: x y}}").ok(),
            Some(wanted.clone())
        );
        assert_eq!(parse(&wanted.to_string()).ok(), Some(wanted));
        assert_eq!(parse("'1'").ok(), Some(json!("1")));
    }

    #[test]
    fn what_is_no_value_is_refused() {
        for (text, message) in [
            ("", "expected a value"),
            ("{a: 1, a: 2}", "`a` is set twice"),
            ("{[a]: 1}", "expected a key"),
            ("[&x 1, *x]", "aliases are not supported here"),
            ("[1", "this is not YAML"),
            ("--- a\n--- b\n", "expected one value"),
        ] {
            let said = parse(text).expect_err(text).to_string();
            assert!(said.starts_with(message), "{text}: {said}");
        }
        let deep = format!("{}{}", "[".repeat(100), "]".repeat(100));
        assert!(parse(&deep).is_err());
    }
}
