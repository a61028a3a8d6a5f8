//! `ratekeeper rules check PATH…`.

use crate::cli::RulesCheck;
use crate::home::Home;
use crate::output::{self, count};
use crate::rules;
use crate::settings::{self, Environment, Flags, RulesSettings};
use anyhow::Result;
use ratekeeper_rules::{Diagnostic, Diagnostics, Loaded};
use std::fmt::Write as _;
use std::path::Path;
use std::process::ExitCode;

pub(crate) fn run(args: &RulesCheck) -> Result<ExitCode> {
    let mut options = args.reading.options()?;
    if let Some(path) = &args.config {
        let settings = settings(path)?;
        options.stores = Some(settings.stores);
        options.tenant_key = settings.tenant_key;
    }
    let mut read = rules::read_all(&args.paths, false)?;
    if let Some(tenants) = &args.tenants {
        rules::add(&mut read, rules::read(tenants, false)?);
    }
    let files = read.sources.len();
    match rules::compile(read, &options) {
        Ok(loaded) => {
            warn(&loaded.warnings);
            if !args.quiet {
                output::print(&summary(&loaded, files))?;
            }
            Ok(ExitCode::SUCCESS)
        }
        Err(problems) => {
            warn(problems.warnings());
            refuse(&problems);
            Ok(ExitCode::FAILURE)
        }
    }
}

/// The settings of the file at `path`, with what goes before it.
fn settings(path: &Path) -> Result<RulesSettings> {
    let mut flags = Flags::default();
    flags.config = Some(path.to_path_buf());
    let (_, settings) = settings::load(&flags, &Environment::of_process(), &Home::find())?;
    Ok(settings.rules)
}

fn warn(warnings: &[Diagnostic]) {
    for warning in warnings {
        output::complain(&format!("{warning}\n"));
    }
}

fn refuse(problems: &Diagnostics) {
    let errors = count(problems.errors().len(), "error");
    output::complain(&format!("{problems}\n\nrefused: {errors}"));
}

fn summary(loaded: &Loaded, files: usize) -> String {
    let rules = loaded.rules.rules();
    let mut text = format!(
        "ok: {} in {} from {}",
        count(rules.len(), "rule"),
        count(loaded.rules.domains().len(), "domain"),
        count(files, "file"),
    );
    if !loaded.warnings.is_empty() {
        let _ = write!(text, ", {}", count(loaded.warnings.len(), "warning"));
    }
    text.push('\n');
    for domain in loaded
        .rules
        .domains()
        .filter(|domain| domain.tenants_listed() > 0)
    {
        let tenants = count(domain.tenants_listed(), "tenant");
        let _ = writeln!(
            text,
            "  {}: {tenants} with a plan or limits of their own",
            domain.name()
        );
    }
    for rule in rules {
        // The costs of what outgrows the table of counters are worth knowing before it is in force.
        let cost = rule.cost().filter(|cost| cost.heap_bytes_max > 0);
        let cost = cost.map(|cost| format!("; {cost}")).unwrap_or_default();
        let off = if rule.enabled { "" } else { " (off)" };
        let _ = writeln!(text, "  {}: {}{cost}{off}", rule.id, rule.in_words());
    }
    text
}
