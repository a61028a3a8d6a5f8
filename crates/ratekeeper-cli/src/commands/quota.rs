//! `ratekeeper quota`: plans and overrides of tenants, by the admin API, and the tables of their database.

mod bulk;
mod changes;
mod database;
mod live;
mod revert;
mod set;
mod tenant;

use crate::cli::Quota;
use anyhow::Result;
use std::process::ExitCode;

pub(super) use database::verify;
pub(super) use live::{read, reset, tenant_text};

pub(super) fn run(command: Quota) -> Result<ExitCode> {
    match command {
        Quota::Get(args) => live::get(&args),
        Quota::Set(args) => set::set(&args),
        Quota::Revert(args) => revert::revert(&args),
        Quota::List(args) => live::list(&args),
        Quota::Delete(args) => live::delete(&args),
        Quota::Import(args) => bulk::import(&args),
        Quota::Export(args) => bulk::export(&args),
        Quota::Usage(args) => bulk::usage(&args),
        Quota::Migrate(flags) => database::migrate(flags),
    }
}
