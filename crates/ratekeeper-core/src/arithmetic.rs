//! The numbers that a limit's steps compute with, for a store that takes the same steps
//! elsewhere: a script that has only doubles.

use crate::limit::Kind;
use crate::rate::Rate;
use crate::{Limit, Micros};

/// What the steps of a limit compute with, besides its quota and window.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Arithmetic {
    /// [`fixed_window`](crate::fixed_window): nothing else.
    FixedWindow,
    /// [`equal_count`](crate::equal_count)
    EqualCount(Groups),
    /// [`sliding_window`](crate::sliding_window): how long a sub-window is.
    SlidingWindow(Micros),
    /// [`sliding_log`](crate::sliding_log): nothing else.
    SlidingLog,
    /// [`token_bucket`](crate::token_bucket)
    TokenBucket(Emission),
    /// [`gcra`](crate::gcra), and [`leaky_bucket`](crate::leaky_bucket) for callers that wait
    /// for any turn.
    Gcra(Emission),
    /// [`leaky_bucket`](crate::leaky_bucket) for callers that can wait for so long, perhaps not
    /// at all: what does not leave by then is refused. It is shorter than the bucket takes to
    /// refill.
    LeakyWithin(Emission, Micros),
    /// [`concurrency`](crate::concurrency): nothing else.
    Concurrency,
}

/// How a sliding window groups its hits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Groups {
    /// The most hits that are counted and let another pass: the quota, less if it is strict.
    pub most: u64,
    /// Hits of a group.
    pub size: u64,
    /// Bits of the distance between two boundaries: 22, 16, 11 or 8.
    pub bits: u32,
    /// The unit of time of boundaries kept with that many bits.
    pub tick: Micros,
}

/// How a bucket refills: one hit every `interval`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Emission {
    /// T, the time one hit takes, in units of 2^-`bits` microseconds; at least 1.
    pub interval: u64,
    /// Bits that T keeps below the microsecond: 0 to 32.
    pub bits: u32,
    /// The capacity in hits. `burst * interval` is at most 2^53 - 1.
    pub burst: u64,
}

impl From<Rate> for Emission {
    fn from(rate: Rate) -> Self {
        Self {
            interval: rate.span(1),
            bits: rate.bits(),
            burst: rate.burst(),
        }
    }
}

impl Limit {
    /// What its steps compute with.
    #[must_use]
    pub fn arithmetic(&self) -> Arithmetic {
        match self.kind {
            Kind::FixedWindow => Arithmetic::FixedWindow,
            Kind::EqualCount(cut) => Arithmetic::EqualCount(cut.groups()),
            Kind::SlidingWindow(sub) => Arithmetic::SlidingWindow(sub.length()),
            Kind::SlidingLog => Arithmetic::SlidingLog,
            Kind::TokenBucket(rate) => Arithmetic::TokenBucket(rate.into()),
            Kind::Gcra(rate) | Kind::LeakyBucket(rate, Micros::MAX) => {
                Arithmetic::Gcra(rate.into())
            }
            Kind::LeakyBucket(rate, most) => Arithmetic::LeakyWithin(rate.into(), most),
            Kind::Concurrency => Arithmetic::Concurrency,
        }
    }
}
