//! Loans between regions: a share that moves to where demand is, before it is used.
//!
//! Each region *owns* a share O of a limit, and the shares of all sum to the limit. A region that needs more asks others,
//! which lend of what they own and do not use. What a region enforces is
//!
//! ```text
//!  S = O - lent + held            lent: what others may hold of it     held: what it may use of others
//! ```
//!
//! | kind | states | ends |
//! |---|---|---|
//! | fixed windows ([`WindowLoans`]) | lent and held for each window | with a window: no clock is compared |
//! | logs and buckets ([`TimedLoans`]) | one amount | `until`, by the borrower's store; the lender waits longer |
//!
//! A borrower [asks](WindowLoans::ask) with the number of its ask, and says what it holds. The lender
//! [lends](WindowLoans::lend): it takes that over, adds what it gives, and answers. The borrower
//! [accepts](WindowLoans::accept) the answer to its latest ask, once. Amounts are absolute, so that messages may be lost,
//! repeated, late and reordered: a later ask replaces all earlier ones.
//!
//! ```text
//!  borrower   none --ask--> asked --accept--> held --drop--> tail --window--> none     held --ask--> held and asked
//!  lender     none --lend--> lent --lend with a later number--> lent --regain, or the end--> none
//! ```
//!
//! **Proof.** For each pair *held <= lent* at all times: `lend` sets lent to at least what is held, as only an answer to the
//! latest ask raises that; `drop` comes before `regain`, since a loan's time counts from before the ask at the borrower, and
//! from after it at the lender. So the sum of S over all regions is at most the limit. And *lent <= O*, so no S is negative.
//! S falls only to what is used, or by `drop`; then nothing is regained until those hits have left the window.
//!
//! - *Windows.* A region leaves window x with at most S(x) admitted, and what was lent for x stays lent. So all admit at most
//!   the limit in x, each hit dated by the store of its region.
//! - *Logs.* In every window that ends after a loan, the lender has at most its lower S: older hits were counted, and younger
//!   ones had to fit.
//! - *Buckets.* Capacity, rate and tokens move together: levels and tokens under way never exceed the burst. Tokens are under
//!   way from the answer that they go along with, in the place of the capacity that was lent with it, until it is taken, or
//!   until an ask tells that it was not: as that ask is a later one, it never will be, and they come back with that capacity.
//!   If the loan is over first, the capacity comes back and fills up, so the tokens do not.
//!
//! **Changes of weights.** A region owns the smaller of its old and new share from when it learns of new weights. It reports
//! once what it has lent fits that, and hits under its old share have left: in windows, from which one on that is so. A
//! region whose share grows owns the larger one once all have reported. So at every moment what regions own or have lent
//! sums to at most the limit.
//!
//! **Conditions.** The clocks that time a loan run within 500 ppm of each other (windows: none are compared). A region's
//! store keeps what it acknowledged through its failovers; asks and answers leave only once it did.
//!
//! Nothing here knows a link, a store or a clock. The simulation in `ratekeeper-testkit` runs it with all of them failing.

mod asking;
mod demand;
mod encoding;
mod standing;
mod timed;
mod wanted;
mod windows;

pub use asking::AskingTimes;
pub use demand::{LoanNeeds, RegionUse, SeenDemand, expected};
pub use encoding::LoanRegions;
pub use standing::{LoanStanding, PeerStanding};
pub use timed::{
    TimedAnswer, TimedAsk, TimedFacts, TimedHeld, TimedLent, TimedLoan, TimedLoans, TimedReply,
    TimedUse,
};
pub use wanted::{LoanAsking, LoanLook, PeerLook, WantedLoan};
pub use windows::{
    LentPiece, WindowAnswer, WindowAsk, WindowFacts, WindowHeld, WindowLent, WindowLoan,
    WindowLoans,
};

use crate::limit::Kind;
use crate::{Limit, Micros};

/// The drift that every clock is allowed, in parts in a million.
pub const DRIFT_PPM: u64 = 500;

/// The way in which loans of a limit are counted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LoanKind {
    /// `fixed_window`. For each window by itself: [`WindowLoans`].
    Windows,
    /// `sliding_window`. For a time: [`TimedLoans`]. Hits count for a window.
    Log,
    /// `token_bucket` and `gcra`, which hold the same tokens. For a time, and with tokens.
    Bucket,
}

impl LoanKind {
    /// The way in which loans of `limit` are counted; [`None`] if no parts of it can be lent.
    #[must_use]
    pub const fn of(limit: &Limit) -> Option<Self> {
        match limit.kind {
            Kind::FixedWindow if !limit.is_calendar() => Some(Self::Windows),
            Kind::EqualCount(cut) if !cut.is_strict() => Some(Self::Log),
            Kind::TokenBucket(_) | Kind::Gcra(_) => Some(Self::Bucket),
            Kind::FixedWindow | Kind::EqualCount(_) => None,
            Kind::SubWindows(_) | Kind::SlidingLog => None,
            Kind::LeakyBucket(..) | Kind::Concurrency | Kind::PostPaid(_) => None,
        }
    }
}

/// The terms of loans: the same for all regions that share a limit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LoanTerms {
    /// The window of the limit.
    pub window: Micros,
    /// The time for which a loan lasts.
    pub time: Micros,
    /// The time that a lender waits longer before it takes back what was never returned.
    pub margin: Micros,
}

impl LoanTerms {
    /// The windows for which a loan lasts beyond the one that it is made in, at least 1.
    #[must_use]
    pub fn windows(&self) -> u64 {
        self.time.get().div_ceil(self.window.get().max(1)).max(1)
    }

    /// The time for which a borrower uses an answer to an ask that it sent `elapsed` ago, by its boot clock; [`None`] if
    /// that has passed.
    #[must_use]
    pub fn usable(&self, elapsed: Micros) -> Option<Micros> {
        let time = self.time.get();
        let lost = (u128::from(time) * u128::from(2 * DRIFT_PPM)).div_ceil(1_000_000);
        // Two thousandths of a time are less than it.
        let lost = u64::try_from(lost).unwrap_or(time);
        let usable = time.checked_sub(lost)?.checked_sub(elapsed.get())?;
        (usable > 0).then_some(Micros::new(usable))
    }
}

/// The reason why an ask changed nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RefusedAsk {
    /// A later ask was answered already.
    Old {
        /// The number of the latest ask.
        last: u64,
    },
    /// The clocks of the two regions are more than a window apart.
    Apart,
    /// The lender owns less than it has lent, since weights changed: loans are not renewed until they fit.
    Shrunk,
}

/// Half of what a region can spare is given to one ask, so that two that ask at once both get some.
const fn part_of_spare(spare: u64) -> u64 {
    spare / 2
}

#[cfg(test)]
mod tests;
