//! The agreement as a page of its own: no script, nothing from elsewhere.

use super::{Agreement, HOW, PublishedLimit};
use std::fmt::Write as _;

const STYLE: &str = "\
:root { color-scheme: light dark; font: 1rem/1.5 system-ui, sans-serif; }
body { max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
table { border-collapse: collapse; width: 100%; margin: 1rem 0; }
th, td { border-bottom: 1px solid #8888; padding: .4rem .8rem .4rem 0; text-align: left; vertical-align: top; }
code { font-family: ui-monospace, monospace; overflow-wrap: anywhere; }";

pub(super) fn page(title: &str, agreement: &Agreement) -> String {
    let title = escaped(title);
    let mut text = format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <title>{title}</title>\n<style>\n{STYLE}\n</style>\n</head>\n<body>\n<h1>{title}</h1>\n<ul>\n"
    );
    for sentence in HOW {
        let _ = writeln!(text, "<li>{}</li>", escaped(sentence));
    }
    text.push_str("</ul>\n");
    if !agreement.service_levels.is_empty() {
        table(&mut text, "Calls", &["call", "path"]);
        for level in &agreement.service_levels {
            let methods = match level.methods.is_empty() {
                true => "any method".to_owned(),
                false => escaped(&level.methods.join(", ")),
            };
            row(&mut text, &[methods, code(&level.path)], &level.limits);
        }
        text.push_str("</tbody>\n</table>\n");
    }
    for domain in &agreement.domains {
        table(&mut text, &domain.name, &["for"]);
        for rule in &domain.rules {
            row(
                &mut text,
                &[escaped(&rule.applies_to.join(", "))],
                &rule.limits,
            );
        }
        text.push_str("</tbody>\n</table>\n");
    }
    text.push_str("</body>\n</html>\n");
    text
}

fn table(text: &mut String, heading: &str, columns: &[&str]) {
    let _ = write!(text, "<h2>{}</h2>\n<table>\n<thead><tr>", escaped(heading));
    for column in columns.iter().chain(&["limit", "policy"]) {
        let _ = write!(text, "<th scope=\"col\">{column}</th>");
    }
    text.push_str("</tr></thead>\n<tbody>\n");
}

/// `cells` are markup already.
fn row(text: &mut String, cells: &[String], limits: &[PublishedLimit]) {
    let joined = |markup: fn(&PublishedLimit) -> String| {
        limits.iter().map(markup).collect::<Vec<_>>().join("<br>")
    };
    let sentences = joined(|limit| escaped(&limit.sentence()));
    let policies = joined(|limit| code(&limit.policy));
    text.push_str("<tr>");
    for cell in cells.iter().chain(&[sentences, policies]) {
        let _ = write!(text, "<td>{cell}</td>");
    }
    text.push_str("</tr>\n");
}

fn code(text: &str) -> String {
    format!("<code>{}</code>", escaped(text))
}

fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            character => out.push(character),
        }
    }
    out
}
