//! The memory that a rule's counters take.

use std::fmt;

use ratekeeper_core::Limit;

use crate::Rule;

/// Bytes of one slot in the store's table, the counter's key included.
const INLINE_BYTES: u64 = 64;

/// The memory that one counter takes on a node. For states kept out of line the store adds some
/// tens of bytes of bookkeeping each.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Cost {
    /// Bytes that every counter takes.
    pub inline_bytes: u64,
    /// The most that its state takes out of line; 0 if it always fits inline.
    pub heap_bytes_max: u64,
}

impl Cost {
    fn of(limit: &Limit) -> Self {
        Self {
            inline_bytes: INLINE_BYTES,
            heap_bytes_max: 8 * limit.heap_words_max(),
        }
    }
}

impl fmt::Display for Cost {
    /// `64 B a counter`, `64 B a counter and up to 160 kB more`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} B a counter", self.inline_bytes)?;
        match self.heap_bytes_max {
            0 => Ok(()),
            bytes @ 1..1_000 => write!(f, " and up to {bytes} B more"),
            bytes @ 1_000..1_000_000 => write!(f, " and up to {} kB more", bytes.div_ceil(1_000)),
            bytes => write!(f, " and up to {} MB more", bytes.div_ceil(1_000_000)),
        }
    }
}

impl Rule {
    /// Returns the memory that one counter of this rule takes; [`None`] if the rule is unlimited.
    #[must_use]
    pub fn cost(&self) -> Option<Cost> {
        self.limited().map(Cost::of)
    }
}
