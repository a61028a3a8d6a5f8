//! Errors of creating a limiter.

use ratekeeper_rules::{Diagnostics, ReadError};
use ratekeeper_store::memory::MemoryError;

/// The reason why a limiter could not be created. A limiter that exists does not fail.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The rules cannot be read.
    #[error("the rules cannot be read")]
    Read(#[from] ReadError),
    /// The rules are refused: every error with its position and a suggested fix.
    #[error("the rules are refused:\n{0}")]
    Rules(Box<Diagnostics>),
    /// The store cannot be created.
    #[error("no room for the counters")]
    Memory(#[from] MemoryError),
}

impl From<Diagnostics> for Error {
    fn from(problems: Diagnostics) -> Error {
        Error::Rules(Box::new(problems))
    }
}
