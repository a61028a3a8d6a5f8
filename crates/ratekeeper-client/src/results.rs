//! Reservations to make, and the results of calls.

use std::time::Duration;

use ratekeeper::limiter::LimitStatus;

use crate::{CheckAnswer, CheckRequest};

/// Counters of a client since its creation.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct ClientCounts {
    /// Calls without retries.
    pub calls: u64,
    /// Retries.
    pub retries: u64,
    /// Checks that the [`FallbackPolicy`](crate::FallbackPolicy) answered.
    pub fallbacks: u64,
    /// Checks, acquires and reserves that were not sent, because the service refused too many: at least half of those
    /// of the last ten seconds. The [`FallbackPolicy`](crate::FallbackPolicy) answered them.
    pub held_back: u64,
    /// Checks, acquires and reserves [refused](crate::Error::Invalid) because of their content.
    pub refused: u64,
}

/// A reservation to make.
#[derive(Clone, PartialEq, Debug)]
pub struct ToReserve {
    /// The domain and descriptors. A descriptor with hits of its own costs those, whatever is
    /// committed later.
    pub question: CheckRequest,
    /// The most hits that the request may cost: at least 1.
    pub hits: u64,
    /// Time within which it must be settled: at most an hour, a minute if none.
    pub ttl: Option<Duration>,
    /// With a key, the reservation is made only once within the ttl, so the call may be retried.
    pub idempotency_key: Option<String>,
}

impl ToReserve {
    /// Reserves `hits` for a minute, without a key.
    #[must_use]
    pub const fn new(question: CheckRequest, hits: u64) -> Self {
        Self {
            question,
            hits,
            ttl: None,
            idempotency_key: None,
        }
    }
}

/// The result of a reserve.
#[derive(Clone, PartialEq, Debug)]
pub struct Reserved {
    /// The decision.
    pub answer: CheckAnswer,
    /// The reservation to settle; none if the request was denied or the service is away.
    pub reservation: Option<Reservation>,
}

/// Reserved hits. Dropping it has no effect: the hits stay charged.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Reservation {
    /// The token by which the service identifies it.
    pub token: String,
    /// Time left to settle it, counted from the answer.
    pub expires_after: Duration,
}

/// The result of settling a reservation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Settled {
    /// The most hits given back to a limit; 0 if no limit counts them any more. One that took fewer than were reserved gets
    /// fewer back.
    pub given_back: u64,
    /// Number of limits that got hits back, or were charged more.
    pub limits: u32,
    /// True if the same call was made before, and this one changed nothing.
    pub is_repeat: bool,
}

/// The result of a refund.
#[derive(Clone, PartialEq, Debug)]
pub struct Refund {
    /// The limit with the least remaining; none if none matched.
    pub limit: Option<LimitStatus<'static>>,
}
