//! The errors of permits, reservations and idempotency keys.

use ratekeeper_store::StoreError;

/// The reason why a permit, a reservation or an idempotency key was refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HoldError {
    /// It was not written under this limiter's hash key, or it was changed.
    #[error("this is not a complete permit or reservation of this service")]
    Malformed,
    /// It is a permit where a reservation is wanted, or the other way round.
    #[error("this is {0}")]
    WrongKind(&'static str),
    /// It was issued to another caller.
    #[error("this belongs to another caller")]
    Foreign,
    /// The permit was released, or its deadline has passed.
    #[error("the permit is no longer held: it was released, or it has expired")]
    NotHeld,
    /// The permit that the idempotency key stands for was released, or its deadline has passed.
    #[error(
        "the permit of this key is no longer held: it was released, or it has expired; use another key"
    )]
    KeySpent,
    /// The reservation was not settled in time, and stays charged in full: it is unknown whether
    /// the work was done.
    #[error("the reservation expired and stays charged in full")]
    Expired,
    /// The commit exceeds the reservation, which is this many hits.
    #[error("only {0} hits were reserved; commit at most those, and check for the rest")]
    TooMuch(u64),
    /// More limits match than a token can name.
    #[error("more than 64 limits match; ask with fewer descriptors")]
    TooManyLimits,
    /// A charge under a key, which nodes tell each other nothing of, where a budget is synced.
    #[error("a budget with `consistency: synced` is charged without a key")]
    Synced,
    /// The idempotency key stands for another request, or the reservation was settled in
    /// another way.
    #[error("this was done before with other content: {0}")]
    Conflict(&'static str),
    /// The store has no room to remember that this was done. Nothing was.
    #[error("the store has no room to remember this call; try again later")]
    NoRoom,
    /// The store has restarted since, and does not know whether this was settled. Nothing is
    /// given back, and the hits stay charged until their window ends.
    #[error("the service restarted since; earlier reservations stay charged")]
    Forgotten,
    /// The store gave no answer; the operation may have been carried out, and may be retried.
    #[error("{0}")]
    Store(#[from] StoreError),
}
