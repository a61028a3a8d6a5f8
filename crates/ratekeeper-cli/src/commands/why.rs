//! `ratekeeper why TENANT`: all that bears on one tenant, on one screen.

use super::audit;
use super::denials::{foot, groups, read_tenant};
use super::quota::tenant_text;
use super::usage;
use crate::cli::Why;
use crate::output::{self, within_line};
use anyhow::{Context, Result};
use ratekeeper_quota::TenantDocument;
use ratekeeper_server::admin_json::{DenialGroup, ToldBy, Usage};
use serde::Deserialize;
use serde_json::{Value, json};
use std::process::ExitCode;

/// The answer of the admin API.
#[derive(Deserialize)]
struct TenantAnswer {
    tenant: String,
    key: Option<String>,
    domain: Option<String>,
    plan: Option<String>,
    summary: String,
    quotas: Option<TenantDocument>,
    usage: Option<Usage>,
    #[serde(default)]
    missing: Vec<String>,
    denials: Vec<DenialGroup>,
    would_be_denied: Vec<DenialGroup>,
    changes: Vec<Value>,
    next_steps: Vec<NextStep>,
    told_by: ToldBy,
}

#[derive(Deserialize)]
struct NextStep {
    title: String,
    command: String,
}

pub(super) fn run(args: &Why) -> Result<ExitCode> {
    let tenant = match args.tenant.as_deref() {
        None | Some("-") => read_tenant()?,
        Some(tenant) => tenant.to_owned(),
    };
    let descriptors = args.limits.descriptors.iter().map(|text| entries(text));
    let question = json!({
        "tenant": tenant,
        "domain": args.limits.domain,
        "descriptors": descriptors.collect::<Result<Vec<_>>>()?,
    });
    let access = &args.access;
    let answer: Value = access.ask("POST", "/admin/v1/tenants", &question.to_string())?;
    output::answer(access.json, &answer, || {
        text(TenantAnswer::deserialize(&answer)?)
    })
}

/// The entries of a descriptor: one, or a JSON list of them.
fn entries(text: &str) -> Result<Vec<String>> {
    match text.starts_with('[') {
        true => {
            serde_json::from_str(text).with_context(|| format!("{text} is no JSON list of entries"))
        }
        false => Ok(vec![text.to_owned()]),
    }
}

fn text(told: TenantAnswer) -> Result<String> {
    let mut text = within_line(&told.tenant).into_owned();
    let fingerprint = told.key.as_deref().and_then(|key| key.split_once(":~"));
    if let Some((_, fingerprint)) = fingerprint.filter(|_| !told.tenant.starts_with('~')) {
        let fingerprint = fingerprint.split('…').next().unwrap_or_default();
        text.push_str(&format!(" (~{fingerprint})"));
    }
    for (what, name) in [("domain", &told.domain), ("plan", &told.plan)] {
        if let Some(name) = name {
            text.push_str(&format!(", {what} {}", within_line(name)));
        }
    }
    text.push_str(&format!("\n{}\n", within_line(&told.summary)));
    let all: Vec<_> = told
        .denials
        .into_iter()
        .chain(told.would_be_denied)
        .collect();
    let mut part = |title: &str, body: &str| {
        if !body.is_empty() {
            text.push_str(&format!("\n{title}{body}"));
        }
    };
    part("", &groups(&all));
    if let Some(usage) = &told.usage {
        part("Usage now\n", &usage::limits(usage));
    }
    if let Some(quotas) = told.quotas {
        part("Plans and overrides\n", &tenant_text(quotas));
    }
    if !told.changes.is_empty() {
        part("Last changes\n", &audit::table(&told.changes)?);
    }
    let steps = told.next_steps.iter();
    let steps = steps.map(|step| {
        let (title, command) = (within_line(&step.title), within_line(&step.command));
        format!("  {title}:\n    {command}\n")
    });
    part("Next\n", &steps.collect::<String>());
    let missing = told
        .missing
        .iter()
        .map(|why| format!("{}\n", within_line(why)));
    part("", &missing.collect::<String>());
    Ok(text + &foot(&told.told_by))
}
