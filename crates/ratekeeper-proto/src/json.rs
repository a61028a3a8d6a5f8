//! Requests and responses as JSON, the way Go's protojson maps them.
//!
//! Reading takes `camelCase` and `snake_case` names, enums by name or number, integers as
//! numbers or strings, `null` as absent; it refuses unknown and repeated fields. Writing
//! leaves out zero values, names enums, writes 64-bit integers as strings and durations as
//! `"27s"`.
//!
//! It is written by hand: six message types, and each refusal names its field, which
//! generated readers do not do.

mod read;
mod tree;
mod write;

pub use read::read_request;
pub use write::write_response;

/// Why JSON is refused.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{}{problem}", if field.is_empty() { String::new() } else { format!("{field}: ") })]
pub struct JsonError {
    /// The path to what is wrong, such as `descriptors[0].hitsAddend`, as the sender wrote it.
    /// Empty where it is the text as a whole.
    pub field: String,
    /// What is wrong, lower case, without a full stop.
    pub problem: String,
}
