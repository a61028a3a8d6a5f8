//! Reads JSON bodies; an error names the wrong field by its path.

use serde::Deserialize;

use crate::http::error::ApiError;
use crate::http::malformed;
use crate::v1::Object;

/// Parses a body.
pub(crate) fn parse<'a, T: Deserialize<'a>>(body: &'a [u8]) -> Result<T, ApiError> {
    match serde_json::from_slice(body) {
        Ok(Object(value)) => Ok(value),
        // Keeping the path at hand takes as long as reading: only who needs it pays for it.
        Err(_) => match malformed::plain(body) {
            Some(message) => Err(ApiError::invalid("body", message)),
            None => parse_by_path(body),
        },
    }
}

fn parse_by_path<'a, T: Deserialize<'a>>(body: &'a [u8]) -> Result<T, ApiError> {
    let mut reader = serde_json::Deserializer::from_slice(body);
    let Object(value) = serde_path_to_error::deserialize(&mut reader).map_err(|error| {
        let path = error.path().to_string();
        let message = error.into_inner().to_string();
        ApiError::invalid(field(path, &message), message)
    })?;
    reader
        .end()
        .map_err(|error| ApiError::invalid("body", error.to_string()))?;
    Ok(value)
}

/// The name of the wrong field: of a missing field, its own; `body` for anything that is not an
/// object of ours.
fn field(path: String, message: &str) -> String {
    // A dot stands for the whole, a question mark for what could not be told.
    let path = path.strip_suffix(".?").map(str::to_owned).unwrap_or(path);
    let path = Some(path).filter(|path| path != "." && path != "?");
    let missing = message
        .strip_prefix("missing field `")
        .and_then(|rest| rest.split_once('`'))
        .map(|(name, _)| name);
    match (path, missing) {
        (None, None) => "body".to_owned(),
        (Some(path), None) => path,
        (None, Some(name)) => name.to_owned(),
        (Some(path), Some(name)) => format!("{path}.{name}"),
    }
}
