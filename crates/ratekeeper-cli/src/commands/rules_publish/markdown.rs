//! The agreement in Markdown.

use super::{Agreement, HOW, PublishedLimit};
use std::fmt::Write as _;

pub(super) fn page(title: &str, agreement: &Agreement) -> String {
    let mut text = format!("# {}\n\n", escaped(title));
    for sentence in HOW {
        let _ = writeln!(text, "- {sentence}");
    }
    if !agreement.service_levels.is_empty() {
        text.push_str("\n## Calls\n\n| call | path | limit | policy |\n|---|---|---|---|\n");
    }
    for level in &agreement.service_levels {
        let methods = match level.methods.is_empty() {
            true => "any method".to_owned(),
            false => level.methods.join(", "),
        };
        row(&mut text, &[&methods, &code(&level.path)], &level.limits);
    }
    for domain in &agreement.domains {
        let _ = writeln!(text, "\n## {}\n", escaped(&domain.name));
        text.push_str("| for | limit | policy |\n|---|---|---|\n");
        for rule in &domain.rules {
            row(
                &mut text,
                &[&escaped(&rule.applies_to.join(", "))],
                &rule.limits,
            );
        }
    }
    text
}

fn row(text: &mut String, cells: &[&str], limits: &[PublishedLimit]) {
    let joined = |words: fn(&PublishedLimit) -> String| {
        limits.iter().map(words).collect::<Vec<_>>().join("<br>")
    };
    let sentences = joined(|limit| escaped(&limit.sentence()));
    let policies = joined(|limit| code(&limit.policy));
    let _ = writeln!(text, "| {} | {sentences} | {policies} |", cells.join(" | "));
}

/// Text that is no markup: whatever Markdown reads as such has a backslash before it.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '\\' | '`' | '*' | '_' | '[' | ']' | '<' | '>' | '|' | '#' | '&' | '~' => {
                out.push('\\');
                out.push(character);
            }
            character if character.is_control() => out.push(' '),
            character => out.push(character),
        }
    }
    out
}

/// Text as it is, in a table's cell.
fn code(text: &str) -> String {
    let is_plain = !text.contains(['`', '|']) && !text.chars().any(char::is_control);
    match is_plain {
        true => format!("`{text}`"),
        false => escaped(text),
    }
}
