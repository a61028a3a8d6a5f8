//! Values in files of tests.

use ratekeeper_core::Micros;

use crate::named::named;

/// The most requests of one step: a test is to be done in moments.
pub(crate) const TIMES_MAX: u64 = 1_000_000;

/// The answer to a request.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, schemars::JsonSchema)]
#[schemars(rename_all = "snake_case")]
pub enum TestAnswer {
    /// It may pass.
    Allowed,
    /// It may not.
    Denied,
}

named!(TestAnswer: Allowed "allowed", Denied "denied");

/// The wait of a denied request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WaitTime {
    /// It would pass after this.
    After(Micros),
    /// No wait helps.
    Never,
}
