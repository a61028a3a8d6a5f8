//! `ratekeeper usage TENANT`.

use super::admin::query;
use crate::cli::Usage;
use crate::output::{self, within_line};
use crate::settings::percent_encoded;
use anyhow::Result;
use ratekeeper_server::admin_json::{self, Used};
use serde::Deserialize;
use std::fmt::Write as _;
use std::process::ExitCode;

pub(super) fn run(args: &Usage) -> Result<ExitCode> {
    let descriptors = args.limits.descriptors.iter();
    let descriptors = descriptors.map(|text| ("descriptor", Some(&**text)));
    let query = query(
        [("domain", args.limits.domain.as_deref())]
            .into_iter()
            .chain(descriptors),
    );
    let path = format!("/admin/v1/usage/{}?{query}", percent_encoded(&args.tenant));
    let answer: serde_json::Value = args.access.ask("GET", &path, "")?;
    output::answer(args.access.json, &answer, || {
        let told = admin_json::Usage::deserialize(&answer)?;
        Ok(text(&told) + &absent(&told, &args.limits.descriptors))
    })
}

fn text(told: &admin_json::Usage) -> String {
    let mut text = format!("domain {}", within_line(&told.domain));
    if let Some(plan) = &told.plan {
        let _ = write!(text, ", plan {}", within_line(plan));
    }
    text + "\n\n" + &limits(told)
}

/// A line for each descriptor that was asked for and has no counter. Without it, a slip would look like a descriptor that
/// nobody has used.
fn absent(told: &admin_json::Usage, asked: &[String]) -> String {
    let mut text = String::new();
    for descriptor in asked {
        // The answer names a list of entries with commas between them.
        let entries: Option<Vec<String>> = serde_json::from_str(descriptor).ok();
        let name = entries.map_or_else(|| descriptor.clone(), |entries| entries.join(","));
        let is_of = |shown: &String| {
            let rest = shown.strip_prefix(&*name);
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('#'))
        };
        if !told.usage.keys().any(is_of) {
            let _ = writeln!(text, "\nno limit of this tenant for {name} has a counter");
        }
    }
    text
}

/// The use of each limit.
pub(super) fn limits(told: &admin_json::Usage) -> String {
    let heads = [
        "DESCRIPTOR",
        "USED",
        "LIMIT",
        "REMAINING",
        "WINDOW",
        "RULE",
        "NOTE",
    ];
    let rows = told.usage.iter().map(|(name, used)| row(name, used));
    let mut text = output::headed(heads, rows);
    if told.usage.is_empty() {
        text.push_str("no limit of this tenant has a counter\n");
    }
    if !told.dynamic.is_empty() {
        let dynamic = told.dynamic.join(", ");
        let _ = writeln!(
            text,
            "\nfor others, name the value with --descriptor: {}",
            within_line(&dynamic)
        );
    }
    if told.truncated {
        text.push_str("\nthere are more descriptors than are shown; name them with --descriptor\n");
    }
    text
}

fn row(name: &str, used: &Used) -> [String; 7] {
    let window = match &used.window.end {
        Some(end) => format!("{} to {end}", used.window.length),
        None => used.window.length.clone(),
    };
    let mut notes = Vec::new();
    if used.mode != "enforced" {
        notes.push(used.mode.clone());
    }
    if let Some(leased) = &used.leased {
        notes.push(format!(
            "used or leased, {} held by this node",
            leased.held_by_this_node
        ));
    }
    [
        name.to_owned(),
        used.used.to_string(),
        used.limit.to_string(),
        used.remaining.to_string(),
        window,
        used.rule.clone(),
        notes.join("; "),
    ]
}
