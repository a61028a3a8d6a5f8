//! `ratekeeper rules test PATH…`.
//!
//! ```text
//! file of tests -> TestFile -> Trial: a limiter with fresh counters, asked at the times of the steps -> Report
//!                 (positions)        (Asked -> Seen, compared with what is expected)
//! ```

mod asked;
mod compare;
mod junit;
mod reached;
mod report;
mod rulebook;
mod seen;
mod trial;

use crate::cli::RulesTest as Args;
use crate::output;
use crate::settings::{self, Flags, Settings, row};
use anyhow::{Context as _, Result, bail};
use ratekeeper_rules::{Diagnostics, Source, TestFile, read_tests};
use report::Report;
use rulebook::Rulebook;
use std::path::Path;
use std::process::ExitCode;

pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    let report = match report(args) {
        Ok(report) => report,
        // Whoever reads JSON gets JSON, also about files that cannot be read.
        Err(error) if args.json => Report::failed(&error),
        Err(error) => return Err(error),
    };
    if let Some(path) = &args.junit {
        let written = std::fs::write(path, report.junit());
        written.with_context(|| format!("cannot write {}", path.display()))?;
    }
    if args.json {
        output::answer(true, &report, || Ok(String::new()))?;
    } else {
        for error in report.errors() {
            output::complain(&format!("{error}\n"));
        }
        output::print(&report.text(args.quiet))?;
    }
    Ok(match report.is_ok() {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    })
}

fn report(args: &Args) -> Result<Report> {
    let settings = settings(args)?;
    let sources = sources(args)?;
    let mut rulebook = Rulebook::new(&settings, args.rules.as_deref());
    let mut report = Report::default();
    for source in &sources {
        match TestFile::parse(source) {
            Ok(file) => run_file(&file, source, args, (&mut rulebook, &mut report))?,
            Err(refused) => report.refuse(&refused),
        }
    }
    if report.is_empty() {
        bail!(
            "no test has `{}` in its name",
            args.name.as_deref().unwrap_or_default()
        );
    }
    // Tests that were left out may reach the others.
    if args.name.is_none() {
        report.set_reached(rulebook.reached());
    }
    Ok(report)
}

fn run_file(
    file: &TestFile,
    source: &Source,
    args: &Args,
    (rulebook, report): (&mut Rulebook<'_>, &mut Report),
) -> Result<()> {
    let is_wanted = |name: &str| args.name.as_ref().is_none_or(|part| name.contains(&**part));
    for test in file.tests.iter().filter(|test| is_wanted(&test.name)) {
        let named = test.rules.as_deref();
        let settings = rulebook.settings();
        if let Some((rules, reached)) = rulebook.rules(Path::new(&source.name), named, report)? {
            report.add(test, trial::run(test, rules, settings, reached)?);
        }
    }
    Ok(())
}

/// All files of tests that the command line names.
fn sources(args: &Args) -> Result<Vec<Source>> {
    let mut sources = Vec::new();
    for path in &args.paths {
        let found = read_tests(path)?;
        if found.is_empty() {
            bail!(
                "there is no file of tests, *.test.yaml, in {}",
                path.display()
            );
        }
        sources.extend(found);
    }
    Ok(sources)
}

fn settings(args: &Args) -> Result<Settings> {
    let mut flags = Flags::of_config(args.config.clone());
    if let Some(path) = &args.rules {
        flags = flags.with(&row::rules, path.display().to_string());
    }
    Ok(settings::of_process(&args.reading.add_to(flags))?)
}

/// All errors of a file, one after the other.
fn all(refused: &Diagnostics) -> impl Iterator<Item = String> {
    refused.errors().iter().map(ToString::to_string)
}
