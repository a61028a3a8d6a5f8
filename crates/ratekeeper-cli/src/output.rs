//! Printing for people and pipes.

use serde::Serialize;
use std::borrow::Cow;
use std::io::{self, Write};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::{FormatTime as _, SystemTime};

/// Writes all of `text` to standard output.
///
/// # Errors
/// Writing failed; [`is_broken_pipe`] returns true if that is because the reader has gone (`ratekeeper … | head`).
pub(crate) fn print(text: &str) -> io::Result<()> {
    print_data(&plain(text))
}

/// Writes all of `data` to standard output as it is, for files and programs.
///
/// # Errors
/// As those of [`print`].
pub(crate) fn print_data(data: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    let written = out.write_all(data.as_bytes()).and_then(|()| out.flush());
    if let Err(error) = &written
        && error.kind() == io::ErrorKind::BrokenPipe
    {
        // Relaxed: it publishes nothing else.
        IS_UNREAD.store(true, Ordering::Relaxed);
    }
    written
}

/// True once the reader of standard output has gone.
static IS_UNREAD: AtomicBool = AtomicBool::new(false);

/// True if messages are written as log lines, because the log is JSON.
static IN_JSON: AtomicBool = AtomicBool::new(false);

/// Writes all messages as JSON objects from now on, panics included: readers of a JSON log understand nothing else.
pub(crate) fn complain_in_json() {
    // Relaxed: it publishes nothing else.
    if !IN_JSON.swap(true, Ordering::Relaxed) {
        std::panic::set_hook(Box::new(|panic| complain(&panic.to_string())));
    }
}

/// The error and its causes in one line, each once: some repeat theirs.
pub(crate) fn with_causes(error: &anyhow::Error) -> String {
    ratekeeper_quota::with_causes(error.as_ref())
}

/// Writes one message to standard error; if even that fails, there is no one left to tell.
pub(crate) fn complain(text: &str) {
    let _ = io::stderr().lock().write_all(complaint(text).as_bytes());
}

/// One message as it is written to standard error, with its line's end.
pub(crate) fn complaint(text: &str) -> String {
    match IN_JSON.load(Ordering::Relaxed) {
        false => format!("{}\n", plain(text)),
        true => format!("{}\n", as_event(text)),
    }
}

/// The message as a log line of level error.
fn as_event(text: &str) -> serde_json::Value {
    let mut timestamp = String::new();
    // A time that cannot be formatted is left out.
    let _ = SystemTime.format_time(&mut Writer::new(&mut timestamp));
    serde_json::json!({
        "timestamp": timestamp,
        "level": "ERROR",
        "message": text.trim_end(),
        "target": "ratekeeper",
    })
}

/// Replaces characters that control a terminal or reorder its text: foreign files and servers determine what is in it.
pub(crate) fn plain(text: &str) -> Cow<'_, str> {
    let obeyed = |c: char| (c.is_control() && !matches!(c, '\n' | '\t')) || reorders(c);
    match text.contains(obeyed) {
        false => Cow::Borrowed(text),
        true => Cow::Owned(text.replace(obeyed, "\u{fffd}")),
    }
}

/// A value as it stands within a line: what would end the line, or control a terminal, is escaped, as `\n`. Rules, callers
/// and servers choose names, and one with a line break could otherwise say anything on a line of its own.
pub(crate) fn within_line(value: &str) -> Cow<'_, str> {
    let is_plain =
        |c: char| !c.is_control() && !reorders(c) && !matches!(c, '\u{2028}' | '\u{2029}');
    match value.chars().all(is_plain) {
        true => Cow::Borrowed(value),
        false => {
            let mut text = String::with_capacity(value.len() + 8);
            for c in value.chars() {
                match is_plain(c) {
                    true => text.push(c),
                    false => text.extend(c.escape_default()),
                }
            }
            Cow::Owned(text)
        }
    }
}

/// Returns true for characters that change the direction of a terminal's text.
const fn reorders(c: char) -> bool {
    matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// Returns true if the only error is that the output is not read any more. A service that hangs up while it is asked breaks
/// a pipe, too, and that is a failure.
pub(crate) fn is_broken_pipe(error: &anyhow::Error) -> bool {
    let is_one = error
        .downcast_ref::<io::Error>()
        .is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe);
    is_one && IS_UNREAD.load(Ordering::Relaxed)
}

/// `1 rule`, `2 rules`.
pub(crate) fn count(number: usize, what: &str) -> String {
    let s = if number == 1 { "" } else { "s" };
    format!("{number} {what}{s}")
}

/// Bytes as people say them: `64 B`, `1.5 MiB`.
pub(crate) fn bytes(number: u64) -> String {
    const UNITS: [(&str, u64); 3] = [("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)];
    for (name, unit) in UNITS {
        if number >= unit {
            // Only shown: a rounded tenth is what is wanted.
            let tenths = (u128::from(number) * 10 + u128::from(unit) / 2) / u128::from(unit);
            return match tenths % 10 {
                0 => format!("{} {name}", tenths / 10),
                tenth => format!("{}.{tenth} {name}", tenths / 10),
            };
        }
    }
    format!("{number} B")
}

/// Prints what a command found out: as JSON if that is asked for, else as `text` words it.
///
/// # Errors
/// Standard output is closed, or `text` fails.
pub(crate) fn answer(
    in_json: bool,
    found: &impl Serialize,
    text: impl FnOnce() -> anyhow::Result<String>,
) -> anyhow::Result<ExitCode> {
    print(&match in_json {
        true => serde_json::to_string_pretty(found)? + "\n",
        false => text()?,
    })?;
    Ok(ExitCode::SUCCESS)
}

/// Rows under `heads`, with their columns aligned.
pub(crate) fn headed<const N: usize>(
    heads: [&str; N],
    rows: impl IntoIterator<Item = [String; N]>,
) -> String {
    let rows = rows.into_iter().map(Vec::from);
    let rows: Vec<_> = [heads.map(str::to_owned).to_vec()]
        .into_iter()
        .chain(rows)
        .collect();
    table(&rows, 0)
}

/// Rows with their columns aligned, two spaces apart, each line indented by `indent`. A row is a line, whatever is in it.
pub(crate) fn table(rows: &[Vec<String>], indent: usize) -> String {
    let rows = rows
        .iter()
        .map(|row| row.iter().map(|cell| within_line(cell)));
    let rows: Vec<Vec<Cow<'_, str>>> = rows.map(Iterator::collect).collect();
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| {
        rows.iter()
            .filter_map(|row| row.get(column))
            .map(|cell| cell.chars().count())
            .max()
            .unwrap_or(0)
    };
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let mut text = String::new();
    for row in &rows {
        let cells = row
            .iter()
            .zip(&widths)
            .map(|(cell, width)| format!("{cell:<width$}"));
        let line = cells.collect::<Vec<_>>().join("  ");
        text.push_str(&" ".repeat(indent));
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_rounded_to_tenths() {
        assert_eq!(bytes(64), "64 B");
        assert_eq!(bytes(256 << 20), "256 MiB");
        assert_eq!(bytes(1536), "1.5 KiB");
    }

    #[test]
    fn nothing_that_a_terminal_obeys_is_printed() {
        assert_eq!(plain("a\tb\n"), "a\tb\n");
        assert_eq!(
            plain("\u{1b}]0;title\u{7}x\r\u{9b}31m\u{202e}"),
            "\u{fffd}]0;title\u{fffd}x\u{fffd}\u{fffd}31m\u{fffd}"
        );
    }

    #[test]
    fn a_value_stays_on_its_line() {
        assert_eq!(within_line("größe 1"), "größe 1");
        assert_eq!(
            within_line("a\nb\r\t\u{1b}[31m\u{202e}\u{2028}"),
            "a\\nb\\r\\t\\u{1b}[31m\\u{202e}\\u{2028}"
        );
        let rows = [vec!["a\nb".to_owned(), "c".to_owned()]];
        assert_eq!(table(&rows, 0), "a\\nb  c\n");
    }

    #[test]
    fn columns_align() {
        let rows = [
            vec!["a".to_owned(), "b".to_owned()],
            vec!["long".to_owned(), "c".to_owned()],
        ];
        assert_eq!(table(&rows, 1), " a     b\n long  c\n");
    }

    #[test]
    fn a_cause_is_told_once() {
        let refused = || io::Error::from(io::ErrorKind::ConnectionRefused);
        let why = refused().to_string();
        let error = anyhow::Error::new(refused()).context(format!("cannot connect to a: {why}"));
        let error = error.context(format!("cannot connect to a: {why}"));
        assert_eq!(with_causes(&error), format!("cannot connect to a: {why}"));
        let error = anyhow::Error::new(refused()).context("rules");
        assert_eq!(with_causes(&error), format!("rules: {why}"));
    }

    #[test]
    fn counts_have_plurals() {
        assert_eq!(count(1, "rule"), "1 rule");
        assert_eq!(count(0, "error"), "0 errors");
    }
}
