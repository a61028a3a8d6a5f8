//! The time that a caller can wait for its turn.

use ratekeeper_core::Micros;

/// A caller's ability to wait for its turn.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Waiting {
    /// No: a leaky bucket's delay becomes a denial, unless the rule says `leaky_over_rls: allow`.
    #[default]
    Cannot,
    /// Yes, at most this long: a leaky bucket denies requests that would have to wait longer, and
    /// gives them no turn.
    Within(Micros),
    /// Yes, for any turn: the decision says how long.
    Can,
}
