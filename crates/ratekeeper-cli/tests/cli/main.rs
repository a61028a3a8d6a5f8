//! The real binary, as people and scripts run it.

mod adjusting;
mod bench;
mod breakers;
#[path = "../shared/collector.rs"]
mod collector;
mod config;
mod dashboard;
mod denials;
mod first_run;
mod hash_key;
mod help;
mod leases;
mod level_plans;
mod listeners;
mod logs;
mod observability;
mod operators;
mod owed;
mod pages;
mod pauses;
mod profile;
mod quota_commands;
mod quotas;
mod redis;
mod replay;
mod rules;
mod serve;
mod signals;
mod state;
mod stores;
mod support;
mod synced;
mod tenants;
mod top;
mod top_nodes;
mod traces;
