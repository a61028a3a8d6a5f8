//! `ratekeeper rules schema`.

use crate::output;
use anyhow::Result;
use std::process::ExitCode;

pub(crate) fn run(of_tests: bool) -> Result<ExitCode> {
    let schema = match of_tests {
        true => ratekeeper_rules::tests_json_schema(),
        false => ratekeeper_rules::json_schema(),
    };
    output::print(&format!("{}\n", serde_json::to_string_pretty(&schema)?))?;
    Ok(ExitCode::SUCCESS)
}
