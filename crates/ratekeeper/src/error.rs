//! Why there is no limiter.

use ratekeeper_rules::{Diagnostics, ReadError};
use ratekeeper_store::memory::MemoryError;

/// Why no limiter could be made. A limiter that has been made does not fail.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The rules cannot be read.
    #[error("the rules cannot be read")]
    Read(#[from] ReadError),
    /// The rules are refused: every place and what to write instead.
    #[error("the rules are refused:\n{0}")]
    Rules(Box<Diagnostics>),
    /// The store cannot be made.
    #[error("the counters have no place")]
    Memory(#[from] MemoryError),
}

impl From<Diagnostics> for Error {
    fn from(problems: Diagnostics) -> Error {
        Error::Rules(Box::new(problems))
    }
}
