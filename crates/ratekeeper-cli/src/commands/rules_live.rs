//! `ratekeeper rules list|enable|disable|shadow|restore`: the rules of a running service.

use super::admin::query;
use crate::cli::{RulesList, SwitchArgs};
use crate::output;
use crate::settings::percent_encoded;
use anyhow::Result;
use ratekeeper_server::admin_json::RuleEntry;
use serde::{Deserialize, Serialize};
use std::process::ExitCode;

/// The position into which a rule's switch is put.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum To {
    Enable,
    Disable,
    Shadow,
    /// None: the switch is taken away.
    Restore,
}

#[derive(Deserialize)]
struct Page {
    rules: Vec<RuleEntry>,
    next_cursor: Option<String>,
}

pub(super) fn list(args: &RulesList) -> Result<ExitCode> {
    let query = query([
        ("limit", Some("1000")),
        ("domain", args.domain.as_deref()),
        ("switched", args.switched.then_some("true")),
    ]);
    let access = &args.access;
    let mut rules: Vec<RuleEntry> = Vec::new();
    access.each_page(&format!("/admin/v1/rules?{query}"), |path| {
        let page: Page = access.ask("GET", path, "")?;
        rules.extend(page.rules);
        Ok(page.next_cursor)
    })?;
    output::answer(access.json, &rules, || Ok(table(&rules)))
}

fn table(rules: &[RuleEntry]) -> String {
    let heads = [
        "RULE", "MODE", "SWITCH", "LIMIT", "ALLOWED", "DENIED", "SHADOW", "SOURCE",
    ];
    let row = |rule: &RuleEntry| {
        [
            rule.id.clone(),
            rule.mode.clone(),
            rule.switch.clone().unwrap_or_else(|| "-".to_owned()),
            rule.limit.clone(),
            rule.counts.allowed.to_string(),
            rule.counts.denied.to_string(),
            rule.counts.shadow_denied.to_string(),
            rule.source.clone(),
        ]
    };
    output::headed(heads, rules.iter().map(row))
}

#[derive(Deserialize, Serialize)]
struct Switched {
    /// The rule as it is now; absent if the files no longer have it.
    #[serde(skip_serializing_if = "Option::is_none")]
    mode: Option<String>,
    /// Absent in answers of earlier versions.
    #[serde(default)]
    scope: String,
    survives_restart: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    warning: Option<String>,
}

pub(super) fn switch(args: &SwitchArgs, to: To) -> Result<ExitCode> {
    let (method, end) = match to {
        To::Enable => ("POST", "enable"),
        To::Disable => ("POST", "disable"),
        To::Shadow => ("POST", "shadow"),
        To::Restore => ("DELETE", "switch"),
    };
    let path = format!("/admin/v1/rules/{}/{end}", percent_encoded(&args.rule));
    let answer: serde_json::Value = args.access.ask(method, &path, "")?;
    if args.access.json {
        output::print(&format!("{}\n", serde_json::to_string_pretty(&answer)?))?;
        return Ok(ExitCode::SUCCESS);
    }
    let switched: Switched = serde_json::from_value(answer)?;
    let now = match (&switched.mode, to) {
        (None, _) => "is not among the rules; its switch is gone".to_owned(),
        (Some(mode), To::Restore) => format!("is {mode}, as its file says"),
        (Some(mode), _) => format!("is {mode}"),
    };
    let place = match &*switched.scope {
        "fleet" => "on all nodes that use the quota database, within seconds",
        _ => "on this node alone",
    };
    output::print(&format!("{} {now}, {place}\n", args.rule))?;
    if let Some(warning) = switched.warning.filter(|_| to != To::Restore) {
        output::complain(&format!("ratekeeper: {warning}"));
    }
    Ok(ExitCode::SUCCESS)
}
