//! `ratekeeper replay`.

use crate::cli;
use crate::settings::{self, Flags, row};
use crate::{output, rules};
use anyhow::{Context, Result};
use indicatif::{ProgressBar, ProgressStyle};
use ratekeeper_replay::{
    CompareWith, Descriptors, Fields, Format, Log, Progress, Replay, ReplayOptions, Report,
};
use ratekeeper_server::AuthConfig;
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
    let mut replay = Replay::new(replay_options(args, settings.auth)?, loaded.rules)?;
    for log in &args.logs {
        let bar = bar();
        let read = replay.read(&Log::from_arg(log), |progress| show(&bar, progress));
        bar.finish_and_clear();
        read?;
    }
    let report = replay.report();
    print(&report, args.json)?;
    Ok(exit(&report, args.strict))
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

fn print(report: &Report, json: bool) -> Result<()> {
    let text = if json {
        serde_json::to_string_pretty(report)? + "\n"
    } else {
        report.to_string()
    };
    output::print(&text)?;
    if json {
        for warning in &report.warnings {
            output::complain(&format!("ratekeeper: warning: {warning}"));
        }
    }
    // In JSON they have no place, and whoever reads only that should not miss them.
    if json && report.lines.malformed > 0 {
        let lines = output::count(
            usize::try_from(report.lines.malformed).unwrap_or(usize::MAX),
            "malformed line",
        );
        output::complain(&format!("ratekeeper: skipped {lines}"));
        for line in &report.summary.bad_lines {
            output::complain(&format!("  {line}"));
        }
    }
    Ok(())
}

fn exit(report: &Report, strict: bool) -> ExitCode {
    if strict && report.lines.malformed > 0 {
        ExitCode::FAILURE
    } else {
        ExitCode::SUCCESS
    }
}
