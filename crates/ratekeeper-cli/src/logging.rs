//! The log: lines of text or JSON on standard error.

mod panics;
mod report;
mod writer;

use crate::output;
use crate::settings::{LogFormat, Values};
use anyhow::{Result, anyhow};
use std::io::IsTerminal;
use std::sync::OnceLock;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::field::MakeExt as _;
use tracing_subscriber::fmt::FormatFields;
use tracing_subscriber::fmt::format::debug_fn;

pub(crate) use report::report;

/// The log of this process, once it is started.
static LINES: OnceLock<writer::Lines> = OnceLock::new();

/// The log while it is written. Dropped, it writes the lines that wait, or gives up after a second: also where a panic ends
/// whoever holds it.
#[must_use]
pub(crate) struct Log(());

impl Drop for Log {
    fn drop(&mut self) {
        finish();
    }
}

/// Starts logging; once in a process.
///
/// # Errors
/// If the filter cannot be read, no thread can be started, or logging has been started before.
pub(crate) fn start(settings: &Values) -> Result<Log> {
    if *settings.log_format == LogFormat::Json {
        output::complain_in_json();
    }
    let filter = EnvFilter::builder().parse(&*settings.log_level)?;
    let lines = writer::start(std::io::stderr())?;
    let lines = LINES.get_or_init(|| lines);
    panics::log_to(lines);
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(move || lines)
        .with_ansi(std::io::stderr().is_terminal())
        // It would be written to standard error, by means that panic if nobody reads that any more.
        .log_internal_errors(false);
    let started = match *settings.log_format {
        LogFormat::Text => builder.fmt_fields(text()).try_init(),
        LogFormat::Json => builder.json().flatten_event(true).try_init(),
    };
    started.map_err(|error| anyhow!("logging cannot be started: {error}"))?;
    Ok(Log(()))
}

/// Writes the lines that wait, or gives up after a second; to be called before the process ends without dropping its [`Log`].
pub(crate) fn finish() {
    if let Some(lines) = LINES.get() {
        lines.finish();
    }
}

/// The fields of a line. Servers and files have a say in errors: nothing that controls a terminal is written.
fn text() -> impl for<'a> FormatFields<'a> + Send + Sync + 'static {
    debug_fn(|line, field, value| {
        let value = format!("{value:?}");
        let value = output::plain(&value);
        match field.name() {
            "message" => write!(line, "{value}"),
            name => write!(line, "{name}={value}"),
        }
    })
    .delimited(" ")
}
