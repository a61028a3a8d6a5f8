//! Options that few requests use: permits, idempotency, giving back.

use ratekeeper_core::{Micros, Timestamp};

/// Options of a request besides its steps. A plain check has none of them, and pays nothing for
/// them.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Extra {
    /// The permit that the request's concurrency steps take, renew or release.
    pub permit: Option<Permit>,
    /// Executes the request only once, however often it is sent.
    pub once: Option<Once>,
    /// The time at which the hits were taken that the request's negative steps give back, by the
    /// store's clock ([`Verdicts::at`](crate::Verdicts::at)). A step whose counter no longer counts
    /// hits of that time ([`Limit::still_counts`](ratekeeper_core::Limit::still_counts)) is decided
    /// as if its hits were 0.
    pub taken_at: Option<Timestamp>,
    /// The [id](Once::id) of a request that this one undoes: its record is deleted, so that it may
    /// be executed again. It had the same first step, and is in the same place.
    pub forgets: Option<u128>,
}

/// A permit and the action on it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Permit {
    /// The id of the permit in every counter that holds it: 128 random bits, not 0.
    pub id: u128,
    /// The action.
    pub act: PermitAct,
}

/// An action on a permit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PermitAct {
    /// Takes it. The concurrency steps have 1 hit each. All of the request's steps are decided
    /// together, rate limits included; a permit that is already held fits, and is renewed.
    Acquire,
    /// Renews it. The concurrency steps have 0 hits each; one whose permit is no longer held
    /// answers [`Verdict::Never`](ratekeeper_core::Verdict::Never), and the others are renewed all
    /// the same.
    Renew,
    /// Releases it. As for `Renew`: 0 hits each, and `Verdict::Never` where it is not held.
    Release,
}

/// Identifies a request that is to be executed once.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Once {
    /// A unique id: random, or a keyed hash.
    pub id: u128,
    /// The end of the time in which a repeat is recognized; after it the request is not executed.
    pub until: Until,
    /// A hash of the request's content: the same id with another content is not a repeat.
    pub content: u64,
}

/// A time by the store's clock, which may differ from the caller's.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Until {
    /// A time reported by the store.
    At(Timestamp),
    /// A time span from the execution of the request.
    After(Micros),
}

impl Until {
    /// The time for a request at `now`, by the store's clock.
    #[must_use]
    pub const fn of(self, now: Timestamp) -> Timestamp {
        match self {
            Self::At(time) => time,
            Self::After(span) => now.after(span),
        }
    }
}

/// The execution of a request.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Execution {
    /// Executed now. It is remembered, if it is to be executed once and was allowed or only gave
    /// back, or charged a post-paid limit; any other denied request took nothing and may be sent again.
    #[default]
    Now,
    /// Executed before, and unchanged by this repeat: the answer is the first one.
    Before,
    /// Not executed: another request was executed under its id. Every outcome is
    /// [`Full`](crate::StepOutcome::Full).
    Conflict,
    /// Not executed, because there is no room to remember it. Outcomes as for `Conflict`.
    NoRoom,
    /// Not executed, because the store cannot tell if it was executed before: it has no records
    /// from the time at which the hits were taken, or [`Once::until`] has passed. Outcomes as for
    /// `Conflict`.
    Unknown,
}
