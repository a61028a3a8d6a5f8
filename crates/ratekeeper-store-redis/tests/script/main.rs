//! The script compared with the steps of core, in a real server.

mod clock;
mod conformance;
mod differential;
mod extras;
mod leases;
mod merging;
mod posts;
mod simulation;
mod told;
