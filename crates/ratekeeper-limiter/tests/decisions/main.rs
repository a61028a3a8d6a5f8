//! Decisions of a limiter, from rules in YAML to statuses, at times that the test chooses.

mod matching;
mod metering;
mod modes;
mod overrides;
mod regions;
mod support;
mod switches;
mod telling;
mod tenants;
mod times;
mod watching;
