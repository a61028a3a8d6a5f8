//! `ratekeeper rules schema`.

use crate::output;
use anyhow::Result;
use std::process::ExitCode;

pub(crate) fn run() -> Result<ExitCode> {
    let schema = ratekeeper_rules::json_schema();
    output::print(&format!("{}\n", serde_json::to_string_pretty(&schema)?))?;
    Ok(ExitCode::SUCCESS)
}
