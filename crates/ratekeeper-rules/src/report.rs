//! Collects the diagnostics of one file.

use std::sync::Arc;

use crate::diagnostic::{Excerpt, Faults};
use crate::mark::{At, Mark};
use crate::{Diagnostic, Position, Severity, Source};

/// The most errors (and the most warnings) reported for one file; the rest are only counted.
const REPORTED_MAX: usize = 200;

/// The diagnostics of one file.
pub(crate) struct Report<'s> {
    file: Arc<str>,
    lines: Vec<&'s str>,
    errors: Vec<Diagnostic>,
    warnings: Vec<Diagnostic>,
    unreported: usize,
    /// Stores that the file names, each with its position.
    pub(crate) stores: Vec<At<Box<str>>>,
}

impl<'s> Report<'s> {
    pub(crate) fn new(source: &'s Source) -> Self {
        // YAML ends lines at LF, CR LF and CR alone.
        let text = source.text.strip_prefix('\u{feff}').unwrap_or(&source.text);
        let lines = text.split('\n').flat_map(|line| {
            let line = line.strip_suffix('\r').unwrap_or(line);
            line.split('\r')
        });
        Self {
            file: source.name.as_str().into(),
            lines: lines.collect(),
            errors: Vec::new(),
            warnings: Vec::new(),
            unreported: 0,
            stores: Vec::new(),
        }
    }

    pub(crate) fn place(&self, mark: Mark) -> Position {
        Position {
            file: Arc::clone(&self.file),
            line: mark.line,
            column: mark.column,
        }
    }

    /// The number of errors so far, without those beyond the first 200.
    pub(crate) const fn errors_told(&self) -> usize {
        self.errors.len()
    }

    pub(crate) fn error(&mut self, mark: Mark, message: impl Into<String>, help: impl Help) {
        self.say(Severity::Error, mark, message.into(), help.into_help());
    }

    pub(crate) fn warn(&mut self, mark: Mark, message: impl Into<String>, help: impl Help) {
        self.say(Severity::Warning, mark, message.into(), help.into_help());
    }

    fn say(&mut self, severity: Severity, mark: Mark, message: String, help: Option<String>) {
        let reported = match severity {
            Severity::Error => self.errors.len(),
            Severity::Warning => self.warnings.len(),
        };
        if reported >= REPORTED_MAX {
            self.unreported += 1;
            return;
        }
        let place = self.place(mark);
        let line = self
            .lines
            .get(mark.line.saturating_sub(1) as usize)
            .copied()
            .unwrap_or_default();
        let excerpt = Excerpt::new(line, mark.column, mark.length as usize);
        let said = match severity {
            Severity::Error => &mut self.errors,
            Severity::Warning => &mut self.warnings,
        };
        said.push(Diagnostic {
            severity,
            place,
            message,
            help,
            excerpt,
        });
    }

    /// Returns errors and warnings, each in the order of the lines.
    pub(crate) fn finish(mut self) -> (Vec<Diagnostic>, Vec<Diagnostic>) {
        if self.unreported > 0 {
            let more = format!("and {} more like these", self.unreported);
            let last = if self.errors.len() < REPORTED_MAX {
                &mut self.warnings
            } else {
                &mut self.errors
            };
            if let Some(last) = last.last_mut() {
                last.help = Some(
                    last.help
                        .take()
                        .map_or(more.clone(), |help| format!("{help}; {more}")),
                );
            }
        }
        self.errors
            .sort_by(|one, other| one.place.cmp(&other.place));
        self.warnings
            .sort_by(|one, other| one.place.cmp(&other.place));
        (self.errors, self.warnings)
    }
}

impl Faults for Report<'_> {
    fn error(&mut self, _: &'static str, mark: Mark, message: &str, help: Option<&str>) {
        let help = help.map(str::to_owned);
        self.say(Severity::Error, mark, message.to_owned(), help);
    }

    fn warn(&mut self, mark: Mark, message: &str, help: Option<&str>) {
        let help = help.map(str::to_owned);
        self.say(Severity::Warning, mark, message.to_owned(), help);
    }
}

/// Types that can supply a suggested fix.
pub(crate) trait Help {
    fn into_help(self) -> Option<String>;
}

impl Help for &str {
    fn into_help(self) -> Option<String> {
        Some(self.to_owned())
    }
}

impl Help for String {
    fn into_help(self) -> Option<String> {
        Some(self)
    }
}

impl Help for Option<String> {
    fn into_help(self) -> Self {
        self
    }
}
