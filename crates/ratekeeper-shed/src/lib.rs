//! Controllers that keep a service useful under overload.
//!
//! A rate limit protects callers from each other; a shedder protects the service from all of them. This crate decides
//! which requests to refuse when there is more work than can be done in time, so that the rest succeeds:
//!
//! - [`FleetUsage`] keeps a share of the fleet for critical requests.
//! - [`WorkerShedder`] sheds the least important requests while utilisation is bad.
//! - [`Gate`] lets as many requests through to an upstream as its [`AdaptiveLimit`] says.
//! - [`PatientQueue`] drops what has waited too long, and [`ClientThrottle`] keeps a client from asking in vain.
//!
//! Controllers are functions of samples and time: no clock, no input or output, no tasks. So a
//! simulator can drive them through hours of overload in a second, and the same code runs in
//! `ratekeeper-tower` and the gateway.
//!
//! ```
//! use ratekeeper_core::{Micros, Timestamp};
//! use ratekeeper_shed::{AdaptiveBounds, AdaptiveLimit, Ending, RoundTrip};
//!
//! let mut limit = AdaptiveLimit::new(AdaptiveBounds { min: 1, max: 1_000 });
//! assert_eq!(limit.limit(), 20);
//! // The upstream times out, again and again.
//! for second in 0..60 {
//!     let lost = RoundTrip {
//!         took: Micros::from_secs(1),
//!         in_flight: 20,
//!         ending: Ending::Dropped,
//!     };
//!     limit.on_sample(Timestamp::from_secs(second), lost);
//! }
//! assert_eq!(limit.limit(), 1);
//! ```

mod adaptive;
mod class;
mod codel;
mod demand;
mod fleet;
mod gate;
mod ladder;
mod throttle;
mod workers;

pub use adaptive::{AdaptiveBounds, AdaptiveLimit, Ending, RoundTrip};
pub use class::{CLASSES_MAX, Class, ClassCount, Share};
pub use codel::{PatientQueue, Popped, QueueTerms};
pub use demand::TenantDemand;
pub use fleet::{FLEET_CELLS, FleetCell, FleetTerms, FleetUsage};
pub use gate::{Gate, GatePlace};
pub use ladder::{Rung, Threshold};
pub use throttle::ClientThrottle;
pub use workers::{
    Effect, Judgement, LoadSample, Round, UtilisationControl, WorkerShedder, WorkerState,
    WorkerTerms,
};

/// Spreads the bits of a number over all 64 (the finalizer of splitmix64, Steele et al., 2014).
#[must_use]
pub const fn mix(number: u64) -> u64 {
    let mut mixed = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}
