//! Ratekeeper's own keys.

mod ids;
mod limits;
mod policies;
mod service_levels;
mod support;
