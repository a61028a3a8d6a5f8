//! The keys of a limit: its quota, its window and the form of its algorithm.

use ratekeeper_core::Micros;

use super::Field;
#[cfg(feature = "yaml")]
use crate::format::fields::Fields;
#[cfg(feature = "yaml")]
use crate::format::mapping::{Keys, Properties};
#[cfg(feature = "yaml")]
use crate::report::Report;
use crate::table::{Typed, kinds, mappings};

kinds! {
    /// Text, for which editors expect a string.
    Word: Box<str>;
    /// A whole number of 0 to 2^32 - 1.
    PerUnit: u64;
    /// A number of sub-windows.
    SubWindows: u64;
    /// Whole numbers with units: us, ms, s, m, h, d, w.
    Duration: Micros;
    /// A window of fixed length, in lower or upper case.
    Unit: Box<str>;
}

mappings! {
    /// The keys that give an algorithm its form.
    struct Form {
        /// The most hits that can pass at once after idle time: token_bucket, gcra and leaky_bucket.
        burst: u64 where { "minimum": 1, "maximum": 9_007_199_254_740_991_u64 },
        /// Cuts a sliding_window into this many parts of equal time; up to twice the limit passes in a
        /// window.
        sub_windows: SubWindows where { "minimum": 1, "maximum": 64 },
        /// A sliding_window that never exceeds its limit, and refuses some hits near it.
        strict: bool,
        /// A budget: hits are charged in full whatever is left, and a request of 0 hits passes while
        /// anything is left.
        post_paid: bool,
        /// The most hits that a post-paid token_bucket or gcra goes below zero: ten bursts by default.
        max_debt: u64 where { "maximum": 9_007_199_254_740_991_u64 },
    }

    /// The keys of a quota and its window.
    struct Quota {
        /// The window: second, minute, hour, day, week (7 days), month (30 days) or year (365 days).
        unit: Unit,
        /// Requests per window, up to 4294967295; 0 blocks everything.
        requests_per_unit: PerUnit where { "maximum": 4_294_967_295_u64 },
        /// No limit.
        unlimited: bool,
        /// Hits per window, up to 2^53 - 1; 0 blocks everything.
        limit: u64 where { "maximum": 9_007_199_254_740_991_u64 },
        /// The length of the window: 10s, 250ms, 1m, 1h, 1d.
        window: Duration,
        /// The time zone whose calendar the window follows, with `unit: day`, `week` or `month`.
        calendar: Word,
        ..form: Form,
    }
}
