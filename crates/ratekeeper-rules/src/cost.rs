//! What a counter of a rule costs in memory.

use std::fmt;

use ratekeeper_core::{Algorithm, Limit, Shape};

use crate::Rule;

/// A counter's place in the store's table, its key included.
const INLINE_BYTES: u64 = 64;

/// What one counter costs in the memory of a node. The store's own bookkeeping for states out of
/// line (some tens of bytes each) comes on top.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Cost {
    /// For every counter.
    pub inline_bytes: u64,
    /// The most that its state takes besides, out of line; 0 if it never does.
    pub heap_bytes_max: u64,
}

impl Cost {
    fn of(limit: &Limit) -> Self {
        let heap_bytes_max = match (limit.algorithm(), limit.shape()) {
            // A sum and an index, then a time and a count for each hit.
            (Algorithm::SlidingLog, _) => 16 + 16 * limit.quota(),
            // An id of two words and a deadline for each permit.
            (Algorithm::Concurrency, _) => 24 * limit.quota(),
            (Algorithm::SlidingWindow, Shape::Heap) => 8 * limit.heap_words() as u64,
            _ => 0,
        };
        Self {
            inline_bytes: INLINE_BYTES,
            heap_bytes_max,
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
    /// What one counter of this rule costs; [`None`] if it is unlimited and has none.
    #[must_use]
    pub fn cost(&self) -> Option<Cost> {
        self.limited().map(Cost::of)
    }
}
