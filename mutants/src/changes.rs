//! The changes that `cargo mutants --list` names.

use crate::compile::cargo;
use anyhow::{Context, Result, ensure};
use serde::Deserialize;
use std::path::Path;

/// A change of one place of a file. Its number, from 1, is its position in the list.
#[derive(Debug, Deserialize)]
pub(crate) struct Change {
    pub(crate) file: String,
    pub(crate) name: String,
    pub(crate) genre: Genre,
    /// The code that stands there instead.
    pub(crate) replacement: String,
    pub(crate) span: Span,
}

/// The kind of a change.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
pub(crate) enum Genre {
    /// The value of a function.
    FnValue,
    BinaryOperator,
    UnaryOperator,
    /// An arm of a match is taken away.
    MatchArm,
    MatchArmGuard,
    /// A field is left to what follows `..`.
    StructField,
    #[serde(other)]
    Other,
}

/// The text that is changed.
#[derive(Debug, Deserialize)]
pub(crate) struct Span {
    pub(crate) start: Position,
    pub(crate) end: Position,
}

/// A line and a column, both from 1; columns count characters.
#[derive(Debug, Deserialize)]
pub(crate) struct Position {
    line: usize,
    column: usize,
}

impl Position {
    /// The number of bytes before the position, if it is in `text`.
    pub(crate) fn offset(&self, text: &str) -> Option<usize> {
        let mut start = 0;
        for line in text.split_inclusive('\n').take(self.line.checked_sub(1)?) {
            start += line.len();
        }
        let rest = text.get(start..)?;
        let before = rest.chars().take(self.column.checked_sub(1)?);
        Some(start + before.map(char::len_utf8).sum::<usize>())
    }
}

/// Lists the changes of a package that `choice` and `.cargo/mutants.toml` leave.
pub(crate) fn list(root: &Path, package: &str, choice: &[String]) -> Result<Vec<Change>> {
    let mut command = cargo(root);
    command.args(["mutants", "--list", "--json", "--package", package]);
    let output = command.args(choice).output();
    let output = output.context("cannot start cargo mutants")?;
    let errors = String::from_utf8_lossy(&output.stderr);
    ensure!(
        output.status.success(),
        "cargo mutants --list failed: {errors}"
    );
    serde_json::from_slice(&output.stdout).context("the list of cargo mutants has another form")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_position_counts_characters_and_an_offset_bytes() {
        let text = "aé\nbéc\n";
        let offset = |line, column| Position { line, column }.offset(text);
        assert_eq!(offset(1, 3), Some(3));
        assert_eq!(offset(2, 1), Some(4));
        assert_eq!(offset(2, 3), Some(7));
        assert_eq!(offset(0, 1), None);
    }
}
