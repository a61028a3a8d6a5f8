//! Bodies of JSON; an error names the wrong field by its path, or says in plain words why a body is no JSON.

use ratekeeper_proto::json;
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::error::Category;

use super::error::ApiError;

/// Reads a body. The field of an error is `body` where no field of ours is wrong.
pub(crate) fn read_json<'a, T: Deserialize<'a>>(body: &'a [u8]) -> Result<T, ApiError> {
    json::read(body).map_err(|error| match malformed(body) {
        Some(message) => ApiError::invalid("body", message),
        None if error.field.is_empty() => ApiError::invalid("body", error.problem),
        None => ApiError::invalid(error.field, error.problem),
    })
}

/// Says in plain words, with line and column, why `body` is no JSON; [`None`] if it is JSON.
pub(super) fn malformed(body: &[u8]) -> Option<String> {
    if body.trim_ascii().is_empty() {
        return Some("the body is empty; send a JSON object".to_owned());
    }
    let error = serde_json::from_slice::<IgnoredAny>(body).err()?;
    let text = error.to_string();
    let found = text.split(" at line ").next().unwrap_or_default();
    let (line, column) = (error.line(), error.column());
    let words = match error.classify() {
        Category::Eof => "it ends before it is complete",
        // The parser waits for another name after a comma.
        _ if found == "key must be a string" && at(body, line, column) == Some(b'}') => {
            words("trailing comma")
        }
        _ => words(found),
    };
    Some(format!(
        "the body is not JSON: {words} (line {line}, column {column})"
    ))
}

/// Rewords the parser's message for readers who do not know the parser.
fn words(found: &str) -> &str {
    match found {
        "expected ident" | "expected value" => {
            "no JSON value begins here; text stands in double quotes"
        }
        "key must be a string" | "expected `\"`" => "a name must stand in double quotes",
        "expected `:`" => "expected a colon between the name and its value",
        "expected `,` or `}`" => "expected a comma, or a } at the end of the object",
        "expected `,` or `]`" => "expected a comma, or a ] at the end of the list",
        "trailing comma" => "there is a comma before the closing bracket; leave it out",
        "trailing characters" => "something follows after its end",
        "invalid number" => "this is not a number as JSON writes them",
        "invalid escape" => "this is not an escape as JSON writes them, such as \\n or \\u00e9",
        "recursion limit exceeded" => "it is nested too deep",
        other if other.starts_with("control character") => {
            "a line break or control character stands in a text; write it as \\n or \\u000a"
        }
        other => other,
    }
}

/// The byte at a place; both count from 1.
fn at(body: &[u8], line: usize, column: usize) -> Option<u8> {
    let line = body
        .split(|byte| *byte == b'\n')
        .nth(line.checked_sub(1)?)?;
    line.get(column.checked_sub(1)?).copied()
}
