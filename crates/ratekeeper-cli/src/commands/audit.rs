//! `ratekeeper audit list|export`: the trail of changes, from a running service.

use super::admin::query;
use crate::cli::{AuditExport, AuditList};
use crate::output;
use anyhow::Result;
use ratekeeper_quota::{AuditDocument, HIDDEN};
use ratekeeper_rules::CUSTOM;
use serde::Deserialize;
use serde_json::Value;
use std::process::ExitCode;

/// The number of changes that are asked for at once.
const PAGE: u64 = 1_000;

/// The overrides of a tenant in the list; of others it tells the number.
const OVERRIDES_SHOWN: usize = 3;

#[derive(Deserialize)]
struct Page {
    changes: Vec<Value>,
    next_cursor: Option<u64>,
}

pub(super) fn list(args: &AuditList) -> Result<ExitCode> {
    let query = query([
        ("limit", Some(&*args.limit.to_string())),
        ("tenant", args.tenant.as_deref()),
        ("domain", args.domain.as_deref()),
    ]);
    let access = &args.access;
    let page: Page = access.ask("GET", &format!("/admin/v1/audit?{query}"), "")?;
    output::answer(access.json, &page.changes, || table(&page.changes))
}

pub(super) fn export(args: &AuditExport) -> Result<ExitCode> {
    let mut after = Some(args.after);
    while let Some(version) = after {
        let path = format!("/admin/v1/audit?limit={PAGE}&after={version}");
        let page: Page = args.access.ask("GET", &path, "")?;
        let lines = page.changes.iter().map(|change| format!("{change}\n"));
        output::print_data(&lines.collect::<String>())?;
        // A service that sends us back would never let us go.
        after = page.next_cursor.filter(|next| *next > version);
    }
    Ok(ExitCode::SUCCESS)
}

pub(super) fn table(changes: &[Value]) -> Result<String> {
    let heads = [
        "CHANGE", "WHEN", "WHO", "FROM", "WHAT", "DOMAIN", "SUBJECT", "NOW",
    ];
    let row = |change| {
        let change = AuditDocument::deserialize(change)?;
        let now = change.after.as_ref().map(|now| in_words(now, change.epoch));
        Ok([
            change.version.to_string(),
            change.changed_at.to_string(),
            change.editor,
            change.source,
            change.action,
            change.domain,
            subject(change.tenant, change.subject),
            now.unwrap_or_else(|| "-".to_owned()),
        ])
    };
    let rows: Result<Vec<_>> = changes.iter().map(row).collect();
    Ok(output::headed(heads, rows?))
}

/// The tenant of a change as far as it may be shown, or else its keyed hash, which commands take.
fn subject(tenant: Option<String>, hash: String) -> String {
    match tenant.as_deref() {
        Some(HIDDEN) => format!("hash:{hash}"),
        Some(tenant) => tenant.to_owned(),
        None => hash,
    }
}

/// An override, such as `endpoint:POST /orders 500 per day until 2027-01-31T00:00:00Z`.
fn override_in_words(own: &Value) -> String {
    let text = |key: &str| own[key].as_str();
    let window = text("unit").or(text("window")).unwrap_or("window");
    let descriptor = text("descriptor").unwrap_or("default");
    let mut words = format!("{descriptor} {} per {window}", own["requests_per_unit"]);
    words.push_str(&term_in_words(own));
    words
}

/// The dates between which a plan or an override holds, if it has any.
fn term_in_words(of: &Value) -> String {
    let date = |word: &str, key: &str| of[key].as_str().map(|at| format!(" {word} {at}"));
    let dates = [date("from", "effective_at"), date("until", "expires_at")];
    dates.into_iter().flatten().collect()
}

/// The steps that a policy in shadow mode would have raised a tenant by; nothing came of them.
fn steps_in_words(noted: &Value, steps: u64) -> String {
    if steps == 0 {
        return "would be raised no more".to_owned();
    }
    let to = noted["requests_per_unit"].as_u64();
    let to = to.map_or_else(String::new, |to| format!(", to {to}"));
    format!(
        "would be raised by {}{to}",
        output::count(usize::try_from(steps).unwrap_or(usize::MAX), "step")
    )
}

/// The state of a tenant, the switch of a rule, the role of a token, or a step that was only noted.
fn in_words(state: &Value, epoch: Option<u32>) -> String {
    if let Some(switch) = state.get("switch") {
        return switch.as_str().unwrap_or("as its file says").to_owned();
    }
    if let Some(role) = state["role"].as_str() {
        return role.to_owned();
    }
    if let Some(steps) = state["steps"].as_u64() {
        return steps_in_words(state, steps);
    }
    let of = |it: &Value| {
        let plan = it["plan"].as_str().filter(|plan| *plan != CUSTOM);
        plan.map(|plan| format!("{plan}{}", term_in_words(it)))
    };
    let several = state["plans"].as_array().into_iter().flatten();
    let plans: Vec<_> = std::iter::once(state)
        .chain(several)
        .filter_map(of)
        .collect();
    let mut words = Vec::new();
    if !plans.is_empty() {
        words.push(format!("plan {}", plans.join(", then ")));
    }
    let overrides = state["overrides"].as_array().map_or(&[][..], Vec::as_slice);
    words.extend(
        overrides
            .iter()
            .take(OVERRIDES_SHOWN)
            .map(override_in_words),
    );
    let others = overrides.len().saturating_sub(OVERRIDES_SHOWN);
    words.extend((others > 0).then(|| output::count(others, "other override")));
    let epoch = epoch.filter(|epoch| *epoch > 0);
    words.extend(epoch.map(|epoch| format!("epoch {epoch}")));
    match words.is_empty() {
        true => "the default plan".to_owned(),
        false => words.join(", "),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn each_change_is_told_as_what_it_is() {
        for (after, epoch, words) in [
            (json!({ "switch": "shadow" }), None, "shadow"),
            (json!({ "switch": null }), None, "as its file says"),
            (json!({ "name": "ann", "role": "admin" }), None, "admin"),
            (
                json!({ "steps": 1, "since": 5, "plan": "pro", "requests_per_unit": 1500, "shown": "acme" }),
                None,
                "would be raised by 1 step, to 1500",
            ),
            (
                json!({ "steps": 0, "plan": "pro", "requests_per_unit": 1000, "shown": "acme" }),
                None,
                "would be raised no more",
            ),
            (json!({ "plan": "pro" }), Some(2), "plan pro, epoch 2"),
            (json!({}), None, "the default plan"),
        ] {
            assert_eq!(in_words(&after, epoch), words, "{after}");
        }
    }
}
