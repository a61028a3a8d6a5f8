//! Errors and warnings about rules files: the problem, its place, and a fix.

use std::fmt;
use std::sync::Arc;

use crate::mark::Mark;

/// A position in a file.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Position {
    /// The file's name, as in [`Source::name`](crate::Source::name).
    pub file: Arc<str>,
    /// Line number, from 1.
    pub line: u32,
    /// Column in characters, from 1.
    pub column: u32,
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let file: String = self.file.chars().map(printable).collect();
        write!(f, "{file}:{}:{}", self.line, self.column)
    }
}

/// The receiver of the faults of a limit as it is written.
pub(crate) trait Faults {
    /// Refuses the draft because of `key`, at `mark`.
    fn error(&mut self, key: &'static str, mark: Mark, message: &str, help: Option<&str>);

    /// Warns of something at `mark`.
    fn warn(&mut self, mark: Mark, message: &str, help: Option<&str>);
}

/// The severity of a diagnostic.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Severity {
    /// The rules are refused.
    Error,
    /// The rules are loaded, but may not do what their author meant.
    Warning,
}

/// An error or a warning about a file. It displays as `file:line:column: message`, the line with a
/// caret under the problem, and a suggested fix.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Diagnostic {
    /// Error or warning.
    pub severity: Severity,
    /// The position of the problem.
    pub place: Position,
    /// The problem: one sentence, lower case, no full stop.
    pub message: String,
    /// A suggested fix, if one is known.
    pub help: Option<String>,
    /// The line of the file, shortened where it is very long; empty if there is none.
    pub excerpt: Excerpt,
}

/// A line of a file with a part of it marked.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct Excerpt {
    /// The line, without its end, tabs as single spaces, control characters replaced.
    pub line: String,
    /// Characters of [`Self::line`] before the mark.
    pub indent: usize,
    /// Characters marked, at least 1.
    pub length: usize,
}

/// Longest excerpt, in characters: a longer line is shown around its place.
const EXCERPT_CHARS_MAX: usize = 120;

impl Excerpt {
    /// The excerpt of `line`, marking `length` characters from `column` (1 is the first).
    pub(crate) fn new(line: &str, column: u32, length: usize) -> Self {
        let before = column.saturating_sub(1) as usize;
        // A long line is shown from 40 characters before the place.
        let cut = if before > EXCERPT_CHARS_MAX - 40 {
            before - 40
        } else {
            0
        };
        let shown: String = line
            .chars()
            .skip(cut)
            .take(EXCERPT_CHARS_MAX)
            .map(printable)
            .collect();
        let room = shown.chars().count().saturating_sub(before - cut).max(1);
        Self {
            line: shown,
            indent: before - cut,
            length: length.clamp(1, room),
        }
    }
}

/// One column for each character, and nothing that moves the cursor of a terminal.
fn printable(character: char) -> char {
    match character {
        '\t' => ' ',
        // Directional marks could make a file look like another one.
        '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{feff}' => '\u{fffd}',
        control if control.is_control() => '\u{fffd}',
        other => other,
    }
}

impl Diagnostic {
    /// Position and message on one line. The excerpt and the help quote the file and so may hold
    /// secrets; this form leaves them out, for logs and answers that others read.
    #[must_use]
    pub fn brief(&self) -> String {
        let message: String = self.message.chars().map(printable).collect();
        format!("{}: {message}", self.place)
    }
}

impl fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = if self.severity == Severity::Warning {
            "warning: "
        } else {
            ""
        };
        let message: String = self.message.chars().map(printable).collect();
        write!(f, "{}: {kind}{message}", self.place)?;
        let Excerpt {
            line,
            indent,
            length,
        } = &self.excerpt;
        let number = self.place.line.to_string();
        let margin = number.len();
        if !line.is_empty() {
            write!(f, "\n{number} | {line}")?;
            write!(
                f,
                "\n{:margin$} | {:indent$}{}",
                "",
                "",
                "^".repeat(*length)
            )?;
        }
        if let Some(help) = &self.help {
            let help: String = help.chars().map(printable).collect();
            write!(f, "\n{:margin$} = help: {help}", "")?;
        }
        Ok(())
    }
}

/// All errors of one load, at least one, in the order of files and lines.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Diagnostics {
    pub(crate) errors: Vec<Diagnostic>,
    pub(crate) warnings: Vec<Diagnostic>,
}

impl Diagnostics {
    /// The errors, because of which the rules are refused.
    #[must_use]
    pub fn errors(&self) -> &[Diagnostic] {
        &self.errors
    }

    /// The warnings.
    #[must_use]
    pub fn warnings(&self) -> &[Diagnostic] {
        &self.warnings
    }

    /// The errors on one line each, as in [`Diagnostic::brief`].
    #[must_use]
    pub fn brief(&self) -> String {
        let lines: Vec<_> = self.errors.iter().map(Diagnostic::brief).collect();
        lines.join("\n")
    }
}

impl fmt::Display for Diagnostics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, error) in self.errors.iter().enumerate() {
            if index > 0 {
                f.write_str("\n\n")?;
            }
            error.fmt(f)?;
        }
        Ok(())
    }
}

impl std::error::Error for Diagnostics {}
