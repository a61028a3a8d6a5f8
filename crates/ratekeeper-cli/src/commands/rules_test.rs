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
use ratekeeper_rules::{Source, TestFile, read_tests};
use report::Report;
use rulebook::Rulebook;
use std::path::Path;
use std::process::ExitCode;

pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    let run = report(args);
    // Whoever reads JSON or XML gets that, also about files that cannot be read: the file would be that of the run before.
    let failed = run.as_ref().err().map(Report::failed);
    let report = run.as_ref().ok().or(failed.as_ref());
    let written = report.map_or(Ok(()), |report| write_junit(args, report));
    if let Some(report) = report.filter(|_| args.json) {
        output::answer(true, report, || Ok(String::new()))?;
        written?;
        return Ok(code(report));
    }
    let report = match run {
        Ok(report) => report,
        Err(why) => {
            // What is in the file passes for the report of this run, and is of an earlier one.
            if let Err(error) = written {
                output::complain(&format!("ratekeeper: {}", output::with_causes(&error)));
            }
            return Err(why);
        }
    };
    for error in report.errors() {
        output::complain(&format!("{error}\n"));
    }
    output::print(&report.text(args.quiet))?;
    written?;
    Ok(code(&report))
}

fn write_junit(args: &Args, report: &Report) -> Result<()> {
    let Some(path) = &args.junit else {
        return Ok(());
    };
    let written = std::fs::write(path, report.junit());
    written.with_context(|| format!("cannot write {}", path.display()))
}

fn code(report: &Report) -> ExitCode {
    match report.is_ok() {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    }
}

fn report(args: &Args) -> Result<Report> {
    let settings = settings(args)?;
    let sources = sources(args)?;
    let mut rulebook = Rulebook::new(&settings, args.rules.as_deref());
    let (mut report, mut is_whole) = (Report::default(), true);
    for source in &sources {
        match TestFile::parse(source) {
            Ok(file) => run_file(&file, source, args, (&mut rulebook, &mut report))?,
            Err(refused) => {
                is_whole = false;
                report.refuse(&refused);
            }
        }
    }
    if report.is_empty() {
        bail!(
            "no test has `{}` in its name",
            args.name.as_deref().unwrap_or_default()
        );
    }
    // Tests that were left out, or whose file is refused, may reach the others.
    if args.name.is_none() && is_whole {
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
        match rulebook.rules(Path::new(&source.name), named, report)? {
            Some((rules, reached)) => {
                report.add(test, trial::run(test, rules, settings, reached)?);
            }
            None => report.skip(test),
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
