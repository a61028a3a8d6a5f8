//! Cells of CSV that spreadsheets take for text, and that are read again as they were.
//!
//! A spreadsheet runs a cell that begins with `=`, `+`, `-` or `@` as a formula, and whoever names a tenant could write
//! one. An apostrophe before it makes it text. A cell that begins or ends with white space has one too: otherwise
//! white space around cells means nothing.
//!
//! Characters that control the direction of text would show a name as another one. A cell with one begins with an
//! apostrophe and a backslash, and has `\uXXXX` in its place, and `\\` for a backslash.

use std::borrow::Cow;

use csv::StringRecord;

use super::bidi;

/// Stands before a text that would be read as something else.
const GUARD: char = '\'';

/// Stands after the guard of a text with escapes.
const ESCAPE: char = '\\';

/// A text as a cell has it.
pub(crate) fn guarded(text: &str) -> Cow<'_, str> {
    if is_escaped(text) {
        let text = text.replace(ESCAPE, r"\\");
        return format!("{GUARD}{ESCAPE}{}", bidi::escaped(&text)).into();
    }
    match needs_guard(text) {
        true => format!("{GUARD}{text}").into(),
        false => text.into(),
    }
}

/// The text of a cell.
fn unguarded(cell: &str) -> Cow<'_, str> {
    let cell = cell.trim_start_matches(char::is_whitespace);
    let guarded = cell.strip_prefix(GUARD);
    if let Some(text) = guarded.and_then(|text| text.strip_prefix(ESCAPE)) {
        return unescaped(text).into();
    }
    match guarded {
        Some(text) if needs_guard(text) => text.into(),
        _ => cell.trim_end().into(),
    }
}

/// The text of an escaped cell, after what it begins with.
fn unescaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once(ESCAPE) {
        out.push_str(before);
        let control = after.get(1..5).filter(|_| after.starts_with('u'));
        let control = control.and_then(|digits| u32::from_str_radix(digits, 16).ok());
        let control = control
            .and_then(char::from_u32)
            .filter(|c| bidi::is_control(*c));
        rest = match control {
            Some(c) => {
                out.push(c);
                &after[5..]
            }
            None => {
                // Of two, the second stands for itself.
                out.push(ESCAPE);
                after.strip_prefix(ESCAPE).unwrap_or(after)
            }
        };
    }
    out + rest
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

/// Returns true for a text with characters that have to be escaped, or that would be taken for an escaped one.
fn is_escaped(text: &str) -> bool {
    text.starts_with(ESCAPE) || text.contains(bidi::is_control)
}

fn needs_guard(text: &str) -> bool {
    let is_formula = text.starts_with(['=', '+', '-', '@']);
    // Otherwise a text with a guard of its own would lose it.
    let has_guard = || text.strip_prefix(GUARD).is_some_and(needs_guard);
    is_formula || is_escaped(text) || text.trim() != text || has_guard()
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
            ("ac\u{202e}me", r"'\ac\u202eme"),
            ("=\u{200f}\\", r"'\=\u200f\\"),
            (r"a\u202e", r"a\u202e"),
            (r"\a", r"'\\\a"),
            (r"'\a", r"''\a"),
        ] {
            assert_eq!(guarded(text), cell);
            assert_eq!(unguarded(cell), text);
        }
        assert_eq!(unguarded("  acme\t"), "acme", "white space around a cell");
    }

    proptest! {
        #[test]
        fn every_text_is_read_as_it_was(text in "['=+@ \\t\u{a0}a-]{0,6}|['\\\\u20e\u{202e}= ]{0,8}|.*") {
            let cell = guarded(&text);
            prop_assert!(!cell.contains(bidi::is_control));
            prop_assert_eq!(unguarded(&cell), text.as_str());
        }
    }
}
