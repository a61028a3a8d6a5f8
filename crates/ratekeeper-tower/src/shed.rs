//! Shedding: refuses requests when there is more work than can be done in time, the least important first.

mod context;
mod counts;
mod deadline;
mod layer;
mod passage;
mod processors;
mod service;
mod shedder;
mod upload;

pub use context::{Arrival, ShedContext};
pub use counts::{ClassState, FleetState, ShedCounts, SiteState};
pub use layer::ShedLayer;
pub use passage::{InFlight, LoadSign, Passage};
pub use service::{ShedFuture, ShedService};
pub use shedder::{Shed, Shedder, Site};
pub use upload::UploadBody;
