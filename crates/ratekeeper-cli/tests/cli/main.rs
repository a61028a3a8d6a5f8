//! The real binary, as people and scripts run it.

mod config;
mod first_run;
mod replay;
mod rules;
mod serve;
mod support;
