//! What few requests want besides their steps: permits, once-only execution, giving back.

use ratekeeper_core::{Micros, Timestamp};

/// What a request wants besides its steps. A plain check has none of it, and pays nothing.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Extra {
    /// The permit that the request's concurrency steps take, prolong or free.
    pub permit: Option<Permit>,
    /// Carry the request out once, however often it is sent.
    pub once: Option<Once>,
    /// When the hits were taken that the request's negative steps give back, by the store's
    /// own time ([`Verdicts::at`](crate::Verdicts::at)). A step whose counter does not count
    /// hits of that time any more ([`Limit::still_counts`](ratekeeper_core::Limit::still_counts))
    /// is decided as if its hits were 0.
    pub taken_at: Option<Timestamp>,
    /// The [id](Once::id) of a request that this one undoes: it is not known any more, so that
    /// it may be carried out again. It had the same first step, and lies in the same place.
    pub forgets: Option<u128>,
}

/// A permit, and what is to become of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Permit {
    /// Names the permit in every counter that it is held in: 128 random bits, not 0.
    pub id: u128,
    /// What to do.
    pub act: PermitAct,
}

/// What is to become of a permit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PermitAct {
    /// Take it. The concurrency steps have 1 hit each. All of the request's steps are decided
    /// together, rate limits too; where the permit is held already it fits, and is renewed.
    Acquire,
    /// Prolong it. The concurrency steps have 0 hits each; one whose permit is not held any
    /// more answers [`Verdict::Never`](ratekeeper_core::Verdict::Never), and the others are
    /// prolonged all the same.
    Renew,
    /// Free it. As `Renew`: 0 hits each, and `Verdict::Never` where it is not held.
    Release,
}

/// Names a request that is to be carried out once.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Once {
    /// Nobody else's: random, or a keyed hash.
    pub id: u128,
    /// Until then a repeat is known as one; from then on the request is not carried out.
    pub until: Until,
    /// A hash of what is asked for: the same id with another content is no repeat.
    pub content: u64,
}

/// A time by the store's clock, which need not be the one of whoever asks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Until {
    /// That time, as the store has told it.
    At(Timestamp),
    /// So long after the request is carried out.
    After(Micros),
}

impl Until {
    /// The time that is meant by a request of `now`, by the store's clock.
    #[must_use]
    pub const fn of(self, now: Timestamp) -> Timestamp {
        match self {
            Self::At(time) => time,
            Self::After(span) => now.after(span),
        }
    }
}

/// Whether a request was carried out.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Execution {
    /// It was, now. Remembered, if it is to be carried out once and was allowed or asked for
    /// nothing; one that was denied took nothing and may be sent again.
    #[default]
    Now,
    /// It was before, and changed nothing now: the answer is that of the first time.
    Before,
    /// It was not: another request was carried out under its id. Every outcome is
    /// [`Full`](crate::StepOutcome::Full).
    Conflict,
    /// It was not, for want of room to remember it. Outcomes as for `Conflict`.
    NoRoom,
    /// It was not, since the store cannot tell whether it was before: it remembers nothing of
    /// the time at which the hits were taken, or it is [`Once::until`] already. Outcomes as for
    /// `Conflict`.
    Unknown,
}
