//! The store with real servers: it counts exactly, repeats denials truly, and survives failures of the server.

mod clock;
mod cluster;
mod conformance;
mod connections;
mod corrupt;
mod denials;
mod encrypted;
mod exact;
mod faults;
mod leases;
mod looks;
mod pauses;
mod refusals;
mod sentinel;
mod several;
mod staleness;
mod support;
mod together;
