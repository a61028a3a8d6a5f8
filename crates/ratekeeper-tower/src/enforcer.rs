//! Who decides: a limiter in this process, or a service elsewhere.

use std::future::Future;
use std::time::Duration;

use ratekeeper_http::answer::{Denial, HeaderLines, Headers};
use ratekeeper_limiter::Check;
use ratekeeper_rules::RuleSet;

/// Decides requests, and holds what they take until they have ended.
///
/// A [`Limiter`](ratekeeper_limiter::Limiter) in an [`Arc`](std::sync::Arc) is one; `ratekeeper-client` has one that asks
/// a service.
pub trait Enforcer: Clone + Send + Sync + 'static {
    /// What a request holds until it has ended. Dropping it gives that back.
    type Permit: Send + Sync + 'static;
    /// What is awaited where it cannot be decided at once. Dropping it gives back what may have been taken.
    type Asking: Future<Output = Admission<Self::Permit>> + Send + 'static;

    /// Shows `read` the rules that are known here: service levels are found among them, and domains.
    fn with_rules<T>(&self, read: impl FnOnce(&RuleSet) -> T) -> T;

    /// Decides `check`, on `terms`.
    fn ask(&self, check: &Check<'_>, terms: Terms) -> Asked<Self::Permit, Self::Asking>;
}

/// What a request is decided on besides its limits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Terms {
    /// In which headers its client is told of them.
    pub headers: Headers,
    /// The longest that it can be held back: what would have to wait longer is denied.
    pub wait_max: Duration,
}

/// Decided, or to be awaited.
#[derive(Debug)]
#[allow(
    clippy::large_enum_variant,
    reason = "what is decided at once is handed over without allocating"
)]
pub enum Asked<P, F> {
    /// Decided at once.
    Decided(Admission<P>),
    /// Decided elsewhere.
    Pending(F),
}

/// What is to become of a request.
#[derive(Debug)]
pub struct Admission<P> {
    /// The headers that tell its client of its limits, on whatever answer it gets.
    pub headers: HeaderLines,
    /// Whether it may pass.
    pub verdict: Verdict<P>,
    /// Whether some limit was answered without being counted where it belongs.
    pub degraded: bool,
}

/// Whether a request may pass.
#[derive(Debug)]
pub enum Verdict<P> {
    /// It may.
    Pass {
        /// How long it is to be held back before, as a leaky bucket wants it.
        delay: Duration,
        /// What it holds until it has ended.
        permit: Option<P>,
    },
    /// It is over a limit.
    Deny(Box<Denial>),
    /// Nobody could decide, and it is not let pass for that.
    Unavailable,
}
