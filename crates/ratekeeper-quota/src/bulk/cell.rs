//! Cells of CSV that spreadsheets take for text, and that are read again as they were.
//!
//! A spreadsheet runs a cell that begins with `=`, `+`, `-` or `@` as a formula, and whoever names a tenant could write
//! one. An apostrophe before it makes it text. A cell that begins or ends with white space has one too: otherwise
//! white space around cells means nothing.

use std::borrow::Cow;

use csv::StringRecord;

/// Stands before a text that would be read as something else.
const GUARD: char = '\'';

/// A text as a cell has it.
pub(crate) fn guarded(text: &str) -> Cow<'_, str> {
    match needs_guard(text) {
        true => format!("{GUARD}{text}").into(),
        false => text.into(),
    }
}

/// The text of a cell.
fn unguarded(cell: &str) -> &str {
    let cell = cell.trim_start_matches(char::is_whitespace);
    match cell.strip_prefix(GUARD) {
        Some(text) if needs_guard(text) => text,
        _ => cell.trim_end(),
    }
}

/// The texts of the cells of a line.
pub(super) fn texts(record: &StringRecord) -> StringRecord {
    record.iter().map(unguarded).collect()
}

/// A line of texts and numbers, with its end.
pub(crate) fn line<'a>(cells: impl IntoIterator<Item = Cow<'a, str>>) -> String {
    let mut writer = csv::Writer::from_writer(Vec::new());
    // Into memory: nothing can fail.
    let _ = writer.write_record(cells.into_iter().map(|cell| guarded(&cell).into_owned()));
    String::from_utf8(writer.into_inner().unwrap_or_default()).unwrap_or_default()
}

fn needs_guard(text: &str) -> bool {
    let is_formula = text.starts_with(['=', '+', '-', '@']);
    // Otherwise a text with a guard of its own would lose it.
    let has_guard = || text.strip_prefix(GUARD).is_some_and(needs_guard);
    is_formula || text.trim() != text || has_guard()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_formula_is_a_text() {
        for (text, cell) in [
            ("=1+1", "'=1+1"),
            ("@SUM(A1)", "'@SUM(A1)"),
            ("-2", "'-2"),
            ("\t=1", "'\t=1"),
            ("'=1", "''=1"),
            (" acme", "' acme"),
            ("acme ", "'acme "),
            ("'tis", "'tis"),
            ("a=b", "a=b"),
        ] {
            assert_eq!(guarded(text), cell);
            assert_eq!(unguarded(cell), text);
        }
        assert_eq!(unguarded("  acme\t"), "acme", "white space around a cell");
    }

    proptest! {
        #[test]
        fn every_text_is_read_as_it_was(text in "['=+@ \\t\u{a0}a-]{0,6}|.*") {
            let cell = guarded(&text);
            prop_assert_eq!(unguarded(&cell), text.as_str());
        }
    }
}
