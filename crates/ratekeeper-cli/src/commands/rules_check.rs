//! `ratekeeper rules check PATH…`.

mod report;

use crate::cli::RulesCheck;
use crate::output::{self, count, within_line};
use crate::rules;
use crate::settings::{self, Flags, row};
use anyhow::Result;
use ratekeeper_rules::{
    Diagnostic, Diagnostics, Loaded, Options, PathFolding, ReadOptions, Rule, RuleSet, ShedMode,
    ShedderKind,
};
use report::Report;
use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

pub(crate) fn run(args: &RulesCheck) -> Result<ExitCode> {
    let checked = check(args);
    if args.json {
        // Whoever reads JSON gets JSON, also about files that cannot be read.
        let report = match &checked {
            Ok(checked) => Report::of(checked),
            Err(error) => Report::without_files(error),
        };
        output::answer(true, &report, || Ok(String::new()))?;
        return Ok(code(checked.is_ok_and(|checked| checked.outcome.is_ok())));
    }
    let Checked {
        outcome,
        files,
        options,
    } = checked?;
    match outcome {
        Ok(loaded) => {
            warn(&loaded.warnings);
            if !args.quiet {
                let text = summary(&loaded, files) + &paths_shown(&loaded.rules, &options);
                output::print(&text)?;
            }
            Ok(code(true))
        }
        Err(problems) => {
            warn(problems.warnings());
            refuse(&problems);
            Ok(code(false))
        }
    }
}

/// Files that could be read, checked.
struct Checked {
    outcome: Result<Loaded, Diagnostics>,
    files: usize,
    options: Options,
}

fn check(args: &RulesCheck) -> Result<Checked> {
    let Told {
        options,
        files,
        tenants,
    } = told(args)?;
    let mut read = rules::read_all(&args.paths, files)?;
    if let Some(tenants) = &tenants {
        rules::add(&mut read, rules::read(tenants, ReadOptions::default())?);
    }
    Ok(Checked {
        files: read.sources.len() + read.errors.len(),
        outcome: rules::compile(read, &options),
        options,
    })
}

/// All that decides how rules are read.
struct Told {
    options: Options,
    files: ReadOptions,
    tenants: Option<PathBuf>,
}

/// The flags and, if they name a settings file, what that says besides: `serve` reads the same.
fn told(args: &RulesCheck) -> Result<Told> {
    let Some(config) = &args.config else {
        return Ok(Told {
            options: args.reading.options()?,
            files: ReadOptions::default(),
            tenants: args.tenants.clone(),
        });
    };
    let mut flags = args.reading.add_to(Flags::of_config(Some(config.clone())));
    if let Some(tenants) = &args.tenants {
        flags = flags.with(&row::tenants, tenants.display().to_string());
    }
    let settings = settings::of_process(&flags)?;
    Ok(Told {
        options: settings.rules.options,
        files: settings.rules.read,
        tenants: settings.values.tenants.clone(),
    })
}

const fn code(is_good: bool) -> ExitCode {
    match is_good {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    }
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

/// The differences between paths that do not count, if a rule goes by a path.
fn paths_shown(rules: &RuleSet, options: &Options) -> String {
    if !rules.goes_by_path() {
        return String::new();
    }
    let (told, else_told) = match options.path_folding {
        PathFolding {
            ignores_case: true,
            ignores_trailing_slash: true,
        } => (
            "upper and lower case and a slash at the end are ignored",
            "",
        ),
        PathFolding {
            ignores_case: true, ..
        } => ("upper and lower case are ignored", "/orders/"),
        PathFolding {
            ignores_trailing_slash: true,
            ..
        } => ("a slash at the end is ignored", "/Orders"),
        PathFolding::NONE => ("compared letter by letter", "/Orders or /orders/"),
    };
    match else_told {
        "" => format!("paths: {told}\n"),
        other => format!("paths: {told}; a rule for /orders does not limit {other}\n"),
    }
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
            within_line(domain.name())
        );
    }
    for rule in rules {
        let _ = writeln!(text, "  {}", within_line(&line(rule)));
    }
    for kind in ShedderKind::ALL {
        let shed = loaded.rules.shed();
        let Some((mode, terms)) = shed.and_then(|it| it.mode(kind).zip(it.in_words(kind))) else {
            continue;
        };
        let _ = match mode {
            ShedMode::On => writeln!(text, "  {}: {terms}", kind.id()),
            mode => writeln!(text, "  {}: {terms} ({})", kind.id(), mode.name()),
        };
    }
    text
}

/// A rule, its limit, and the ways in which it denies less than that says.
fn line(rule: &Rule) -> String {
    let mut line = format!("{}: {}", rule.id, rule.in_words());
    // The costs of what outgrows the table of counters are worth knowing before it is in force.
    if let Some(cost) = rule.cost().filter(|cost| cost.heap_bytes_max > 0) {
        let _ = write!(line, "; {cost}");
    }
    match (&rule.share, rule.regions) {
        (Some(share), _) => {
            let _ = write!(line, "; {share}");
        }
        (None, Some(_)) => {
            line.push_str("; shared by regions, `--config ratekeeper.yaml` shows how")
        }
        (None, None) => {}
    }
    let exceptions = rule.exceptions_in_words();
    if !exceptions.is_empty() {
        let _ = write!(line, " ({exceptions})");
    }
    line
}
