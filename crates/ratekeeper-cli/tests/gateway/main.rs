//! `ratekeeper gateway`, in front of upstreams that keep to HTTP and upstreams that do not.

mod adaptive;
#[path = "../shared/collector.rs"]
mod collector;
mod conformance;
mod denials;
mod drain;
mod flood;
mod forwarding;
mod grpc;
mod hangups;
mod health;
mod hostile;
mod http2;
mod kept;
mod keys;
mod levels;
mod limits;
mod log;
mod plans;
mod python;
mod routes;
mod service;
mod shaping;
mod shared;
mod shares;
mod shedding;
mod slow;
mod smuggling;
mod spelling;
mod streams;
mod support;
mod traces;
mod trust;
mod twins;
mod upstreams;
mod usage;
