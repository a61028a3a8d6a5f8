//! Requests and responses as JSON, as Go's protojson maps them.
//!
//! Reading accepts `camelCase` and `snake_case` names, enums by name or number, integers as numbers
//! or strings, and `null` as absent; it refuses unknown and repeated fields. Writing leaves out
//! zero values, names enums, and writes 64-bit integers as strings and durations as `"27s"`.
//!
//! It is written by hand: there are only six message types, and every refusal names its field,
//! which generated readers do not do.

mod read;
mod tree;
mod write;

pub use read::read_request;
pub use write::write_response;

/// The reason why JSON is refused.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{}{problem}", if field.is_empty() { String::new() } else { format!("{field}: ") })]
pub struct JsonError {
    /// The path to the faulty field as the sender wrote it, such as `descriptors[0].hitsAddend`.
    /// Empty if the text as a whole is at fault.
    pub field: String,
    /// The problem, in lower case, without a full stop.
    pub problem: String,
}
