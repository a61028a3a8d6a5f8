//! The number of a partition.

/// A partition where counters are kept, by a number of its [`Partitions`](super::Partitions).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Partition(pub u32);
