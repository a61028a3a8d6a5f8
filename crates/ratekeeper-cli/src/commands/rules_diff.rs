//! `ratekeeper rules diff OLD NEW`.

mod alike;
mod loosened;
mod report;
mod requests;
mod taken;

use crate::cli::{FailOn, RulesDiff};
use crate::settings::{self, Flags, Settings};
use crate::{output, rules};
use anyhow::Result;
use ratekeeper_rules::{RuleSet, TenantKey};
use report::Report;
use std::path::Path;
use std::process::ExitCode;

/// The exit code of diff where there is nothing to compare.
const TROUBLE: u8 = 2;

pub(crate) fn run(args: &RulesDiff) -> Result<ExitCode> {
    let (old, new) = match read(args) {
        Ok(both) => both,
        // Whoever reads JSON gets JSON.
        Err(error) if args.json => {
            output::answer(true, &Report::failed(&error), || Ok(String::new()))?;
            return Ok(ExitCode::from(TROUBLE));
        }
        Err(error) => {
            output::complain(&format!("ratekeeper: {}", output::with_causes(&error)));
            return Ok(ExitCode::from(TROUBLE));
        }
    };
    let report = Report::of(&old, &new);
    output::answer(args.json, &report, || Ok(report.text()))?;
    let is_failure = match args.fail_on {
        FailOn::Difference => !report.is_same(),
        FailOn::Warnings => report.has_warnings(),
    };
    Ok(match is_failure {
        true => ExitCode::FAILURE,
        false => ExitCode::SUCCESS,
    })
}

/// Reads both sets in the same way.
fn read(args: &RulesDiff) -> Result<(RuleSet, RuleSet)> {
    let flags = args.reading.add_to(Flags::of_config(args.config.clone()));
    let mut settings = settings::of_process(&flags)?;
    // Each load would hash tenants under a key of its own, and none would be the same.
    let key = &mut settings.rules.options.tenant_key;
    key.get_or_insert_with(TenantKey::default);
    let (before, after) = (
        args.old_tenants.as_deref(),
        settings.values.tenants.as_deref(),
    );
    let after = after.filter(|_| before.is_some());
    if before.is_none() && settings.values.tenants.is_some() {
        output::complain(
            "note: tenants are left out, since those of NEW may have plans that OLD does not have; to compare them, name \
             both: --old-tenants PATH --tenants PATH",
        );
    }
    let old = load(&args.old, before, &settings)?;
    Ok((old, load(&args.new, after, &settings)?))
}

fn load(path: &Path, tenants: Option<&Path>, settings: &Settings) -> Result<RuleSet> {
    let loaded = rules::load(path, tenants, settings.rules.read, &settings.rules.options)?;
    Ok(loaded.rules)
}
