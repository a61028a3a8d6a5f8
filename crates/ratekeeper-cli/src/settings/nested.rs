//! Settings whose value is a list or a mapping.
//!
//! Such a value becomes JSON before it is parsed further, in every layer: a settings file may write it over
//! many lines, a variable or a flag writes it in YAML's flow style or as JSON.

use ratekeeper_rules::{YamlDocument, YamlFault};
use serde::de::DeserializeOwned;
use serde_json::Value;

/// The fault of a nested value.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NestedError {
    #[error(transparent)]
    Yaml(#[from] YamlFault),
    #[error("expected a value")]
    Nothing,
    #[error("expected one value")]
    Several,
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

/// Parses the value of a variable or a flag, or one that was read before.
///
/// # Errors
/// It is not YAML, or not one value, or has an alias, a duplicate key or a key that is not text.
pub(crate) fn parse(text: &str) -> Result<Value, NestedError> {
    let mut document = YamlDocument::parse(text)?;
    if document.is_followed {
        return Err(NestedError::Several);
    }
    if let Some(fault) = document.faults.pop() {
        return Err(fault.into());
    }
    let root = document.root().ok_or(NestedError::Nothing)?;
    Ok(root.to_json()?)
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
        let deep = format!("{}{}", "[".repeat(500), "]".repeat(500));
        assert!(parse(&deep).is_err());
    }
}
