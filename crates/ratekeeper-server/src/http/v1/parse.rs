//! Reads JSON bodies; an error names the wrong field by its path.

use ratekeeper_proto::json;
use serde::Deserialize;

use crate::http::error::ApiError;
use crate::http::malformed;

/// Parses a body. The field of an error is `body` where no field of ours is wrong.
pub(crate) fn parse<'a, T: Deserialize<'a>>(body: &'a [u8]) -> Result<T, ApiError> {
    json::read(body).map_err(|error| match malformed::plain(body) {
        Some(message) => ApiError::invalid("body", message),
        None if error.field.is_empty() => ApiError::invalid("body", error.problem),
        None => ApiError::invalid(error.field, error.problem),
    })
}
