//! Settings whose value is a list or a mapping.
//!
//! Such a value becomes JSON before it is parsed further, in every layer: a settings file may write it over
//! many lines, a variable or a flag writes it in YAML's flow style or as JSON.

use saphyr_parser::{Event, Parser, ScalarStyle, ScanError, Span, StrInput};
use serde_json::{Map, Value};

/// The deepest that a value may be nested.
const DEPTH_MAX: usize = 16;

/// The parser that values are read from.
pub(super) type Events<'a> = Parser<'a, StrInput<'a>>;

/// The place of an error, and its message.
pub(super) type Fault = (Span, String);

/// Parses the value of a variable or a flag, or one that was read before.
///
/// # Errors
/// It is not YAML, or not one value.
pub(crate) fn parse(text: &str) -> Result<Value, String> {
    let mut events = Parser::new_from_str(text);
    let mut value = None;
    while let Some(event) = events.next_event() {
        let (event, span) = event.map_err(|error| not_yaml(&error))?;
        match event {
            Event::Scalar(..) | Event::SequenceStart(..) | Event::MappingStart(..)
                if value.is_none() =>
            {
                let read = read(&mut events, event, span);
                value = Some(read.map_err(|(_, message)| message)?);
            }
            Event::Scalar(..)
            | Event::SequenceStart(..)
            | Event::MappingStart(..)
            | Event::Alias(_) => {
                return Err("expected one value".to_owned());
            }
            _ => {}
        }
    }
    value.ok_or_else(|| "expected a value".to_owned())
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

/// The message about text that is not YAML.
pub(super) fn not_yaml(error: &ScanError) -> String {
    format!("this is not YAML: {}", error.info())
}

fn value<'a>(
    events: &mut Events<'a>,
    event: Event<'a>,
    span: Span,
    depth: usize,
) -> Result<Value, Fault> {
    if depth > DEPTH_MAX {
        return Err((span, format!("it is nested deeper than {DEPTH_MAX} levels")));
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
                    _ => return Err((at, "expected a key".to_owned())),
                };
                let (event, span) = next(events, at)?;
                let value = value(events, event, span, depth + 1)?;
                if map.insert(key.clone(), value).is_some() {
                    return Err((at, format!("`{key}` is set twice: keep one of the two")));
                }
            }
        }
        _ => Err((
            span,
            "aliases are not understood here: write the value out".to_owned(),
        )),
    }
}

fn next<'a>(events: &mut Events<'a>, after: Span) -> Result<(Event<'a>, Span), Fault> {
    match events.next_event() {
        Some(Ok(event)) => Ok(event),
        Some(Err(error)) => Err((Span::empty(*error.marker()), not_yaml(&error))),
        None => Err((after, "the value does not end".to_owned())),
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
        assert_eq!(parse(block), Ok(wanted.clone()));
        assert_eq!(
            parse("{a: [1, true, ~, 007, 1.5, 'yes'], b: {c: x y}}"),
            Ok(wanted.clone())
        );
        assert_eq!(parse(&wanted.to_string()), Ok(wanted));
        assert_eq!(parse("'1'"), Ok(json!("1")));
    }

    #[test]
    fn what_is_no_value_is_refused() {
        for (text, message) in [
            ("", "expected a value"),
            ("{a: 1, a: 2}", "`a` is set twice"),
            ("{[a]: 1}", "expected a key"),
            ("[&x 1, *x]", "aliases are not understood here"),
            ("[1", "this is not YAML"),
            ("--- a\n--- b\n", "expected one value"),
        ] {
            let said = parse(text).expect_err(text);
            assert!(said.starts_with(message), "{text}: {said}");
        }
        let deep = format!("{}{}", "[".repeat(100), "]".repeat(100));
        assert!(parse(&deep).is_err());
    }
}
