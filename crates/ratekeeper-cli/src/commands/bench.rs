//! `ratekeeper bench`.

use super::serve;
use crate::cli::{Bench, BenchLoad, BenchQuestion};
use crate::output;
use anyhow::{Context, Result};
use indicatif::{ProgressBar, ProgressStyle};
use ratekeeper_bench::{Forwarded, HttpPath, Keys, Load, Over, Pace, Progress, Question, Service};
use ratekeeper_server::ConstantAnswer;
use std::io::IsTerminal;
use std::process::ExitCode;

/// An answer of the usual size: OK, and one descriptor with 4,000,000,000 a minute, 3,999,999,999 of them left for
/// another 60 s.
const USUAL_ANSWER: [u8; 26] = [
    0x08, 0x01, 0x12, 0x16, 0x08, 0x01, 0x12, 0x08, 0x08, 0x80, 0xd0, 0xac, 0xf3, 0x0e, 0x10, 0x02,
    0x18, 0xff, 0xcf, 0xac, 0xf3, 0x0e, 0x22, 0x02, 0x08, 0x3c,
];

pub(crate) fn run(args: Bench) -> Result<ExitCode> {
    match args {
        Bench::Grpc {
            load,
            question,
            streams,
        } => {
            let service = Service::Rls(asked(&question));
            let mut wanted = wanted(&load, service, (8081, question.has_key()));
            wanted.streams = streams;
            put(&wanted, load.json)
        }
        Bench::Http {
            load,
            question,
            path,
        } => {
            let path = match path.as_str() {
                "/json" => HttpPath::Json,
                _ => HttpPath::Check,
            };
            let service = Service::Http(path, asked(&question));
            put(
                &wanted(&load, service, (8080, question.has_key())),
                load.json,
            )
        }
        Bench::Batch {
            load,
            question,
            over,
            size,
        } => {
            let (over, port) = match over.as_str() {
                "grpc" => (Over::Grpc, 8081),
                _ => (Over::Http, 8080),
            };
            let service = Service::Batch {
                over,
                question: asked(&question),
                size,
            };
            put(
                &wanted(&load, service, (port, question.has_key())),
                load.json,
            )
        }
        Bench::Gateway { load, path, method } => {
            let has_key = path.contains(KEY);
            let service = Service::Gateway(Forwarded { method, path });
            put(&wanted(&load, service, (8082, has_key)), load.json)
        }
        Bench::Ceiling { flags, answer } => {
            let bytes = answer.map_or_else(|| USUAL_ANSWER.to_vec(), |answer| answer.0);
            let answer = ConstantAnswer::decode(&bytes).context("--answer")?;
            serve::run_answering(&flags.0, answer)
        }
    }
}

fn asked(question: &BenchQuestion) -> Question {
    Question::new(&question.domain, &question.entries.0)
}

/// The text that stands for the key in a request.
const KEY: &str = "{key}";

/// The keys of a load that names none: enough of them that the limit of each is not reached, and what is measured are
/// decisions that allow.
const USUAL_KEYS: Keys = Keys::Uniform(100_000);

impl BenchQuestion {
    /// Returns true if requests have keys.
    fn has_key(&self) -> bool {
        let mut entries = self.entries.0.iter();
        self.domain.contains(KEY)
            || entries.any(|(key, value)| key.contains(KEY) || value.contains(KEY))
    }
}

fn wanted(args: &BenchLoad, service: Service, (port, has_key): (u16, bool)) -> Load {
    let target = args.target.clone();
    let target = target.unwrap_or_else(|| format!("127.0.0.1:{port}"));
    let mut load = Load::new(target, service);
    let usual = if has_key { USUAL_KEYS } else { load.keys };
    load.connections = args.connections.unwrap_or(load.connections);
    load.threads = args.threads;
    load.keys = args.keys.unwrap_or(usual);
    load.duration = args.duration;
    load.warm_up = args.warm_up;
    load.windows = args.windows;
    load.pid = args.pid;
    if let Some(per_second) = args.rate {
        load.pace = Pace::Open { per_second };
    }
    load
}

/// Puts the load on its target and prints how that went; requests without a decision are a failure.
fn put(load: &Load, json: bool) -> Result<ExitCode> {
    let bar = bar();
    let report = ratekeeper_bench::run(load, |progress| show(&bar, progress));
    bar.finish_and_clear();
    let report = report?;
    let text = if json {
        serde_json::to_string_pretty(&report)? + "\n"
    } else {
        report.to_string()
    };
    output::print(&text)?;
    if report.failed() > 0 {
        output::complain(&format!(
            "ratekeeper: {} got no decision",
            output::count(
                usize::try_from(report.failed()).unwrap_or(usize::MAX),
                "request"
            )
        ));
        return Ok(ExitCode::FAILURE);
    }
    Ok(ExitCode::SUCCESS)
}

/// A bar on standard error, for people.
fn bar() -> ProgressBar {
    if !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::no_length();
    if let Ok(style) = ProgressStyle::with_template("{bar:30} {msg}  {eta} left") {
        bar.set_style(style);
    }
    bar
}

#[expect(clippy::cast_precision_loss, reason = "a rate for people")]
fn show(bar: &ProgressBar, progress: Progress) {
    let millis = |span: std::time::Duration| u64::try_from(span.as_millis()).unwrap_or(u64::MAX);
    bar.set_length(millis(progress.total));
    bar.set_position(millis(progress.elapsed.min(progress.total)));
    let seconds = progress.elapsed.as_secs_f64().max(1e-3);
    bar.set_message(format!(
        "{} decisions, {:.0}/s",
        progress.decisions,
        progress.decisions as f64 / seconds
    ));
}
