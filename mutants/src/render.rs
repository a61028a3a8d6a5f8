//! A file with switches.

use crate::changes::Change;
use crate::place::{Bytes, Form, Located, Piece, Place, Variant, places};
use crate::switch::condition;
use anyhow::{Context, Result};
use std::collections::BTreeSet;

/// The code for a change, in a file with switches.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Switch {
    pub(crate) at: Bytes,
    pub(crate) ids: Vec<u32>,
}

/// A file with switches.
#[derive(Debug)]
pub(crate) struct Rendered {
    pub(crate) text: String,
    pub(crate) switches: Vec<Switch>,
}

/// Puts the changes of a file behind switches, apart from those in `left_out`. No switch stands in a function that
/// `constants` names.
pub(crate) fn render(
    text: &str,
    changes: &[(u32, &Change)],
    left_out: &BTreeSet<u32>,
    constants: &BTreeSet<String>,
) -> Result<Rendered> {
    let file = syn::parse_file(text).context("it is not understood")?;
    let live = changes.iter().filter(|(id, _)| !left_out.contains(id));
    let located = live.map(|(id, change)| located(*id, change, text));
    let located = located.collect::<Result<Vec<_>>>()?;
    let places = places(&file, &located, constants);
    let mut renderer = Renderer {
        text,
        places: &places,
        out: String::new(),
        switches: Vec::new(),
    };
    renderer.range(0..text.len(), 0);
    Ok(Rendered {
        text: renderer.out,
        switches: renderer.switches,
    })
}

fn located<'a>(id: u32, change: &'a Change, text: &str) -> Result<Located<'a>> {
    let ends = change
        .span
        .start
        .offset(text)
        .zip(change.span.end.offset(text));
    let (start, end) = ends.with_context(|| format!("not in the file: {}", change.name))?;
    Ok(Located {
        id,
        genre: change.genre,
        replacement: &change.replacement,
        at: start..end,
    })
}

struct Renderer<'a> {
    text: &'a str,
    places: &'a [Place],
    out: String,
    switches: Vec<Switch>,
}

impl<'a> Renderer<'a> {
    /// Writes a part of the file, with the places from number `from` that are in it.
    fn range(&mut self, range: Bytes, from: usize) {
        let places: &'a [Place] = self.places;
        let mut written = range.start;
        for (number, place) in places.iter().enumerate().skip(from) {
            if place.at.start >= range.end {
                break;
            }
            if place.at.start < written || place.at.end > range.end {
                continue;
            }
            self.copy(written..place.at.start);
            self.place(place, number + 1);
            written = place.at.end;
        }
        self.copy(written..range.end);
    }

    fn place(&mut self, place: &Place, next: usize) {
        let start = self.out.len();
        match &place.form {
            Form::Nothing => {}
            Form::Return { id, value } => {
                let condition = condition(*id);
                self.out += &format!("if {condition} {{ return {value}; }}\n");
                self.switch(start, vec![*id]);
            }
            Form::Guard { id } => {
                self.out += &format!(" if !{}", condition(*id));
                self.switch(start, vec![*id]);
            }
            Form::Choice { variants, original } => self.choice(variants, original, next),
        }
    }

    fn choice(&mut self, variants: &[Variant], original: &[Piece], next: usize) {
        let start = self.out.len();
        self.out += "(";
        for (id, pieces) in variants {
            let start = self.out.len();
            self.out += &format!("if {} {{ ", condition(*id));
            self.pieces(pieces, next);
            self.out += " } else ";
            self.switch(start, vec![*id]);
        }
        self.out += "{ ";
        self.pieces(original, next);
        self.out += " })";
        self.switch(start, variants.iter().map(|(id, _)| *id).collect());
    }

    fn pieces(&mut self, pieces: &[Piece], next: usize) {
        for piece in pieces {
            match piece {
                Piece::Own(text) => self.out += text,
                Piece::Of(range) => self.range(range.clone(), next),
            }
        }
    }

    fn switch(&mut self, start: usize, ids: Vec<u32>) {
        let at = start..self.out.len();
        self.switches.push(Switch { at, ids });
    }

    fn copy(&mut self, range: Bytes) {
        // Both ends are those of tokens, and so of characters.
        self.out += self.text.get(range).unwrap_or_default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// Renders a file with a change of the first `old` to `new`.
    fn changed(text: &str, genre: &str, old: &str, new: &str, constants: &[&str]) -> String {
        let start = text.find(old).expect("it is there");
        let position = |at: usize| json!({ "line": 1, "column": at + 1 });
        let span = json!({ "start": position(start), "end": position(start + old.len()) });
        let change = json!({
            "file": "a.rs", "name": "a", "genre": genre, "replacement": new, "span": span
        });
        let change: Change = serde_json::from_value(change).expect("a change");
        let constants = constants.iter().map(|&it| it.to_owned()).collect();
        let rendered = render(text, &[(7, &change)], &BTreeSet::new(), &constants);
        rendered.expect("it is understood").text
    }

    #[test]
    fn an_operator_is_chosen() {
        assert_eq!(
            changed(
                "fn a() -> u8 { 1 + 2 * 3 }",
                "BinaryOperator",
                "+",
                "-",
                &[]
            ),
            "fn a() -> u8 { (if crate::__is_changed(7) { ((1) - (2 * 3)) } else { ((1) + (2 * 3)) }) }"
        );
        assert_eq!(
            changed("fn a() -> bool { !b() }", "UnaryOperator", "!", "", &[]),
            "fn a() -> bool { (if crate::__is_changed(7) { (b()) } else { !(b()) }) }"
        );
    }

    #[test]
    fn a_function_returns_at_once() {
        assert_eq!(
            changed("fn a() -> u8 { b() }", "FnValue", "b()", "0", &[]),
            "fn a() -> u8 { if crate::__is_changed(7) { return 0; }\nb() }"
        );
    }

    #[test]
    fn an_arm_is_taken_away() {
        assert_eq!(
            changed(
                "fn a() { match b { 1 => c(), _ => {} } }",
                "MatchArm",
                "1 => c()",
                "",
                &[]
            ),
            "fn a() { match b { 1 if !crate::__is_changed(7) => c(), _ => {} } }"
        );
        let choice = "(if crate::__is_changed(7) { false } else { q })";
        let text = "fn a() { match b { 1 if q => c(), _ => {} } }";
        let expected = format!("fn a() {{ match b {{ 1 if {choice} => c(), _ => {{}} }} }}");
        assert_eq!(
            changed(text, "MatchArm", "1 if q => c()", "", &[]),
            expected
        );
        assert_eq!(changed(text, "MatchArmGuard", "q", "false", &[]), expected);
    }

    #[test]
    fn a_field_is_left_to_the_rest() {
        assert_eq!(
            changed(
                "fn a() -> S { S { b: 1, ..c() } }",
                "StructField",
                "b: 1",
                "",
                &[]
            ),
            "fn a() -> S { (if crate::__is_changed(7) { S { ..c() } } else { S { b: 1, ..c() } }) }"
        );
    }

    #[test]
    fn a_function_is_constant_only_where_it_must_be() {
        let text = "const fn a() -> u8 { 1 + 2 }";
        let choice = "(if crate::__is_changed(7) { ((1) - (2)) } else { ((1) + (2)) })";
        assert_eq!(
            changed(text, "BinaryOperator", "+", "-", &[]),
            format!(" fn a() -> u8 {{ {choice} }}")
        );
        assert_eq!(changed(text, "BinaryOperator", "+", "-", &["a"]), text);
        let text = "const A: u8 = 1 + 2;";
        assert_eq!(changed(text, "BinaryOperator", "+", "-", &[]), text);
    }
}
