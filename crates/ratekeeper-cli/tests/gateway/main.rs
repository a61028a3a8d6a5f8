//! `ratekeeper gateway`, in front of upstreams that keep to HTTP and upstreams that do not.

mod conformance;
mod drain;
mod forwarding;
mod hostile;
mod levels;
mod limits;
mod log;
mod readme;
mod routes;
mod service;
mod support;
mod upstreams;
