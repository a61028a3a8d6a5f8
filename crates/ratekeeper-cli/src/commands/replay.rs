//! `ratekeeper replay`.

use crate::cli;
use crate::settings::{self, Flags, row};
use crate::{output, rules};
use anyhow::{Context, Result};
use indicatif::{ProgressBar, ProgressStyle};
use ratekeeper_replay::{
    BadLine, CompareWith, CostOptions, CostReplay, Descriptors, Fields, Format, LineCounts, Log,
    Progress, Replay, ReplayError, ReplayOptions,
};
use ratekeeper_server::AuthConfig;
use serde::Serialize;
use std::fmt::Display;
use std::io::IsTerminal;
use std::process::ExitCode;

pub(crate) fn run(args: &cli::Replay) -> Result<ExitCode> {
    let settings = settings::of_process(&flags(args))?;
    let loaded = rules::load(
        &args.rules,
        settings.values.tenants.as_deref(),
        settings.rules.read,
        &settings.rules.options,
    )?;
    let logs: Vec<Log> = args.logs.iter().map(|log| Log::from_arg(log)).collect();
    if args.cost {
        let mut replay = CostReplay::new(cost_options(args), &loaded.rules)?;
        let done = read_all(logs, |log, progress| replay.read(log, progress));
        let report = replay.report();
        let malformed = (report.lines, report.bad_lines());
        if report.lines.read > 0 || done.is_ok() {
            print(args.json, &report, &report.warnings, malformed)?;
        }
        done?;
        return Ok(exit(report.lines, report.is_unsound(), args.strict));
    }
    let mut options = replay_options(args, settings.auth)?;
    options.wait_max = (*settings.values.wait_max).into();
    let mut replay = Replay::new(options, loaded.rules)?;
    let bar = bar();
    let done = replay.read_all(logs, |progress| show(&bar, progress));
    bar.finish_and_clear();
    let report = replay.report();
    let malformed = (report.lines, &*report.summary.bad_lines);
    // What was read before a fault counts: it may be hours of it.
    if report.lines.read > 0 || done.is_ok() {
        print(args.json, &report, &report.warnings, malformed)?;
    }
    done?;
    Ok(exit(report.lines, report.is_unsound(), args.strict))
}

/// Reads all logs, one after the other, with a bar for people.
fn read_all(
    logs: Vec<Log>,
    mut read: impl FnMut(&Log, &mut dyn FnMut(Progress)) -> Result<(), ReplayError>,
) -> Result<()> {
    for log in logs {
        let bar = bar();
        let done = read(&log, &mut |progress| show(&bar, progress));
        bar.finish_and_clear();
        done?;
    }
    Ok(())
}

/// The settings that the command line says.
fn flags(args: &cli::Replay) -> Flags {
    let flags = Flags::of_config(args.config.clone());
    let flags = flags.with(&row::rules, args.rules.display().to_string());
    args.reading.add_to(flags)
}

fn replay_options(args: &cli::Replay, auth: AuthConfig) -> Result<ReplayOptions> {
    let mut options = ReplayOptions::default();
    options.domain = args.domain.clone();
    options.describer = auth.describer;
    options.forwarding = auth.forwarding;
    options.format = args.format.as_deref().and_then(Format::from_name);
    if let Some(text) = &args.fields {
        options.fields = Fields::parse(text).context("--fields")?;
    }
    if let Some(text) = &args.descriptors {
        let descriptors = Descriptors::parse(text, &options.fields).context("--descriptors")?;
        options.descriptors = Some(descriptors);
    }
    options.compare = args.compare.as_deref().and_then(CompareWith::from_name);
    options.top_denied = args.top;
    options.sort_within = args.sort_within.into();
    Ok(options)
}

fn cost_options(args: &cli::Replay) -> CostOptions {
    let mut options = CostOptions::default();
    let lists = args.descriptors.as_deref().unwrap_or_default().split(';');
    let names = |list: &str| list.split(',').map(|name| name.trim().to_owned()).collect();
    let lists = lists.filter(|list| !list.trim().is_empty());
    options.domain = args.domain.clone();
    options.descriptors = lists.map(names).collect();
    options.weights = args.costs.weights;
    options.reserve = args.costs.reserve;
    options.tokens_per_second = args.costs.speed;
    options.users = args.costs.users;
    options.top_denied = args.top;
    options
}

/// A bar on standard error, for people: indicatif shows none where no terminal is.
fn bar() -> ProgressBar {
    if !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::no_length();
    let template = "{bar:30} {binary_bytes}/{binary_total_bytes}  {msg}  {eta} left";
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style);
    }
    bar
}

fn show(bar: &ProgressBar, progress: Progress) {
    if let Some(total) = progress.bytes_total {
        bar.set_length(total);
    }
    bar.set_position(progress.bytes_read);
    bar.set_message(format!("{} lines", progress.lines));
}

fn print(
    json: bool,
    report: &(impl Serialize + Display),
    warnings: &[String],
    (lines, bad_lines): (LineCounts, &[BadLine]),
) -> Result<()> {
    let text = match json {
        true => serde_json::to_string_pretty(report)? + "\n",
        false => report.to_string(),
    };
    output::print(&text)?;
    if !json {
        return Ok(());
    }
    for warning in warnings {
        output::complain(&format!("ratekeeper: warning: {warning}"));
    }
    // In JSON they have no place, and whoever reads only that should not miss them.
    if lines.malformed > 0 {
        let lines = output::count(
            usize::try_from(lines.malformed).unwrap_or(usize::MAX),
            "malformed line",
        );
        output::complain(&format!("ratekeeper: skipped {lines}"));
        for line in bad_lines {
            output::complain(&format!("  {line}"));
        }
    }
    Ok(())
}

fn exit(lines: LineCounts, is_unsound: bool, strict: bool) -> ExitCode {
    if is_unsound || (strict && lines.malformed > 0) {
        ExitCode::FAILURE
    } else {
        ExitCode::SUCCESS
    }
}
