//! The algorithms of Ratekeeper as pure steps.
//!
//! A [`Limit`] defines how much may pass, a state records how much has passed, and a step decides
//! if some hits fit at a given time. Nothing here does I/O, reads a clock, takes a lock or fails:
//! time is a value, limits are validated when they are made, and a denial is an answer.
//!
//! Stores work in two phases, because the charge depends on every limit of a request:
//! [`Limit::test`] each counter, [`combine`] the answers, then [`Limit::charge`] the counters to
//! charge. [`Limit::step`] does both for a single counter:
//! ```
//! use ratekeeper_core::{Algorithm, Limit, LimitSpec, Micros, Moment, State, Timestamp, Verdict};
//!
//! let spec = LimitSpec::new(Algorithm::Gcra, 2, Micros::from_secs(1));
//! let limit = Limit::try_new(spec).expect("two a second is a valid limit");
//! let mut state = State::new(limit.shape());
//! let now = Moment::at(Timestamp::from_secs(1_000));
//!
//! assert_eq!(limit.step(&mut state, 2, &now).verdict, Verdict::Fits);
//! let denied = limit.step(&mut state, 1, &now);
//! assert_eq!(denied.verdict, Verdict::Later);
//! assert_eq!(denied.retry_after, Micros::from_millis(500));
//! ```
//!
//! Time should not go back, and stores ensure that. If it does, no step panics, none leaves more
//! than the capacity, and no more passes than in the time that went by (the sum of the steps
//! forward). The windows and the log keep the latest time of a charge; for a bucket, the time by
//! which the clock went back counts as taken, up to its capacity.
//!
//! All integers are at most 2^53 - 1, so that a Redis script, which has only doubles, can take the
//! same step.

mod arithmetic;
mod ask;
mod combine;
pub mod concurrency;
mod divisor;
pub mod duration;
pub mod equal_count;
pub mod fixed_window;
pub mod formats;
pub mod gcra;
pub mod leaky_bucket;
#[doc(hidden)]
pub mod lease;
mod limit;
mod outcome;
pub mod percentage;
pub mod post_paid;
mod rate;
pub mod region;
pub mod sliding_log;
mod spec;
mod state;
mod step;
pub mod sub_windows;
#[doc(hidden)]
pub mod synced;
mod time;
pub mod token_bucket;

pub use arithmetic::{Arithmetic, Emission};
pub use ask::{Ask, Bounds, Moment};
pub use combine::{Mode, Vote, combine, quota_denies};
pub use equal_count::Groups;
pub use limit::Limit;
pub use outcome::{Outcome, Verdict};
pub use region::{Region, RegionId, Regions, RegionsError, Unshareable, Whole};
pub use spec::{Algorithm, LimitError, LimitSpec, MAX_LOG, MAX_PERMITS, MAX_SUB_WINDOWS};
pub use state::{Heap, Shape, Spill, State, StateMut, StateRef, Words};
pub use time::{MAX_COUNT, Micros, Timestamp};
