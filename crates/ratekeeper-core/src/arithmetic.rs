//! The numbers in a limit's steps, for a store that takes the same steps in a language with doubles
//! only.

use crate::limit::Kind;
use crate::post_paid::PostPaid;
use crate::rate::Rate;
use crate::{Groups, Limit, Micros};

/// The parameters of a limit's steps, besides its quota and window.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Arithmetic {
    /// [`fixed_window`](crate::fixed_window): no further parameters.
    FixedWindow,
    /// [`equal_count`](crate::equal_count)
    EqualCount(Groups),
    /// [`sub_windows`](crate::sub_windows): the length of a sub-window.
    SubWindows(Micros),
    /// [`sliding_log`](crate::sliding_log): no further parameters.
    SlidingLog,
    /// [`token_bucket`](crate::token_bucket), and [`gcra`](crate::gcra), which takes the same steps.
    TokenBucket(Emission),
    /// The same, [post-paid](crate::post_paid): with the most hits that can be missing, the burst and
    /// the largest debt.
    Indebted(Emission, u64),
    /// [`leaky_bucket`](crate::leaky_bucket) for callers that accept any delay.
    LeakyBucket(Emission),
    /// [`leaky_bucket`](crate::leaky_bucket) for callers that accept at most this delay, perhaps
    /// zero: hits that could not leave by then are denied. It is shorter than the time that the
    /// bucket takes to refill.
    LeakyWithin(Emission, Micros),
    /// [`concurrency`](crate::concurrency): no further parameters.
    Concurrency,
}

/// The refill rate of a bucket: one hit every `interval`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Emission {
    /// T, the time of one hit, in units of 2^-`bits` microseconds; at least 1.
    pub interval: u64,
    /// Fractional bits of T: 0 to 32.
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
    /// The parameters of its steps.
    #[must_use]
    pub fn arithmetic(&self) -> Arithmetic {
        match self.kind {
            Kind::FixedWindow => Arithmetic::FixedWindow,
            Kind::EqualCount(cut) => Arithmetic::EqualCount(cut.groups()),
            Kind::SubWindows(sub) => Arithmetic::SubWindows(sub.length()),
            Kind::SlidingLog => Arithmetic::SlidingLog,
            Kind::TokenBucket(rate) | Kind::Gcra(rate) => Arithmetic::TokenBucket(rate.into()),
            Kind::LeakyBucket(rate, Micros::MAX) => Arithmetic::LeakyBucket(rate.into()),
            Kind::LeakyBucket(rate, most) => Arithmetic::LeakyWithin(rate.into(), most),
            Kind::Concurrency => Arithmetic::Concurrency,
            Kind::PostPaid(PostPaid::Bucket(rate, most)) => Arithmetic::Indebted(rate.into(), most),
            Kind::PostPaid(_) => self.prepaid().arithmetic(),
        }
    }
}
