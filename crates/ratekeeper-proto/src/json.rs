//! Requests and responses as JSON, as Go's protojson maps them.
//!
//! Reading accepts `camelCase` and `snake_case` names, enums by name or number, integers as numbers
//! or strings, and `null` as absent; it refuses unknown and repeated fields. Writing leaves out
//! zero values, names enums, and writes 64-bit integers as strings and durations as `"27s"`.
//!
//! serde reads and writes the messages: the test that generates their code adds its derives, and names the functions here
//! for fields whose JSON is not serde's own.

mod object;
pub(crate) mod reading;
pub(crate) mod writing;

use serde::Deserialize;

use crate::envoy::service::ratelimit::v3::{RateLimitRequest, RateLimitResponse};
pub use object::Object;

/// The reason why JSON is refused.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{}{problem}", if field.is_empty() { String::new() } else { format!("{field}: ") })]
pub struct JsonError {
    /// The path to the faulty field as the sender wrote it, such as `descriptors[0].hitsAddend`.
    /// Empty if the text as a whole is at fault.
    pub field: String,
    /// The problem, without a full stop.
    pub problem: String,
}

/// Reads an object.
///
/// # Errors
/// The text is not JSON, or not of a `T`; the first wrong field is named.
pub fn read<'a, T: Deserialize<'a>>(text: &'a [u8]) -> Result<T, JsonError> {
    // Text is tested once here, and not again in each of its strings.
    if let Ok(text) = std::str::from_utf8(text)
        && let Ok(Object(value)) = serde_json::from_str(text)
    {
        return Ok(value);
    }
    // Keeping the path at hand takes as long as reading: only those who need it pay for it, and those whose strings
    // have bytes that are not text.
    read_by_path(text)
}

fn read_by_path<'a, T: Deserialize<'a>>(text: &'a [u8]) -> Result<T, JsonError> {
    let mut reader = serde_json::Deserializer::from_slice(text);
    let read = serde_path_to_error::deserialize(&mut reader);
    let Object(value) = read.map_err(|error| {
        let path = error.path().to_string();
        let problem = error.into_inner().to_string();
        let field = field(path, &problem);
        JsonError { field, problem }
    })?;
    reader.end().map_err(|error| JsonError {
        field: String::new(),
        problem: error.to_string(),
    })?;
    Ok(value)
}

/// The path to the wrong field, also to one that is missing or there twice.
fn field(path: String, message: &str) -> String {
    // A dot stands for the whole, a question mark for what could not be told.
    let path = path.strip_suffix(".?").map(str::to_owned).unwrap_or(path);
    let path = Some(path).filter(|path| path != "." && path != "?");
    let named = ["missing field `", "duplicate field `"].into_iter();
    let named = named.filter_map(|start| message.strip_prefix(start)?.split('`').next());
    path.into_iter()
        .chain(named.map(str::to_owned))
        .collect::<Vec<_>>()
        .join(".")
}

/// Reads a request.
///
/// # Errors
/// The text is not JSON, or a field is unknown, repeated, of the wrong type or out of range.
pub fn read_request(text: &[u8]) -> Result<RateLimitRequest, JsonError> {
    read(text)
}

/// Writes a response.
///
/// This service never sets `raw_body`, `quota` or the `raw_value` of headers (see the `.proto`
/// file), so they are left out.
#[must_use]
pub fn write_response(response: &RateLimitResponse) -> String {
    // Texts and numbers: nothing in there can fail.
    serde_json::to_string(response).unwrap_or_default()
}
