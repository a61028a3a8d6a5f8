//! `ratekeeper quota get|list|delete` and `ratekeeper reset`: tenants of a running service.

use super::changes::changes;
use super::tenant::{KnownTenant, own, path};
use crate::cli::{AdminAccess, QuotaDelete, QuotaList, TenantArgs};
use crate::commands::admin::{Condition, query};
use crate::output::{self, within_line};
use crate::settings::percent_encoded;
use anyhow::{Context, Result, anyhow};
use ratekeeper_quota::TenantDocument;
use ratekeeper_rules::{Dated as _, TenantOverride, TenantQuotas};
use ratekeeper_server::admin_json::Usage;
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::json;
use std::fmt::Write as _;
use std::io::Read as _;
use std::path::Path;
use std::process::ExitCode;

/// The number of tenants that are asked for at once.
const PAGE: &str = "500";

pub(super) fn get(args: &TenantArgs) -> Result<ExitCode> {
    let answer = args.access.ask("GET", &path(args, ""), "")?;
    print(&args.access, &answer, tenant_text)
}

pub(super) fn delete(args: &QuotaDelete) -> Result<ExitCode> {
    let TenantArgs { tenant, access, .. } = &args.tenant;
    let condition = args.if_version.map_or(Condition::Any, Condition::Version);
    let path = path(&args.tenant, "");
    let _: IgnoredAny = access.ask_if("DELETE", &path, "", condition)?;
    let answer = json!({ "tenant": tenant, "deleted": true });
    output::answer(access.json, &answer, || {
        Ok(format!(
            "{} has no plan or overrides of its own any more\n",
            within_line(tenant)
        ))
    })
}

pub(in crate::commands) fn reset(args: &TenantArgs) -> Result<ExitCode> {
    let is_unused = is_unused(args);
    let answer = args.access.ask("POST", &path(args, "/reset"), "")?;
    if is_unused {
        output::complain(&format!(
            "note: the database did not have {}, and no limit of it was used: is the name right?",
            args.tenant
        ));
    }
    print(&args.access, &answer, |_: IgnoredAny| {
        format!("the usage of {} is reset to zero\n", args.tenant)
    })
}

/// Returns true for a tenant that has nothing to be reset, as far as this node knows: probably one whose name is misspelt.
fn is_unused(args: &TenantArgs) -> bool {
    let is_new = KnownTenant::read(args)
        .is_ok_and(|known| known.version.is_none() && known.quotas == TenantQuotas::default());
    let query = query([("domain", args.domain.as_deref())]);
    let path = format!("/admin/v1/usage/{}?{query}", percent_encoded(&args.tenant));
    let used = || args.access.ask::<Usage>("GET", &path, "");
    is_new && used().is_ok_and(|told| told.usage.values().all(|limit| limit.used == 0))
}

pub(super) fn list(args: &QuotaList) -> Result<ExitCode> {
    #[derive(Deserialize)]
    struct Page {
        quotas: Vec<TenantDocument>,
        next_cursor: Option<String>,
    }

    let query = query([
        ("limit", Some(PAGE)),
        ("domain", args.domain.as_deref()),
        ("plan", args.plan.as_deref()),
        ("overrides", args.overrides.then_some("true")),
    ]);
    let access = &args.access;
    let mut tenants = Vec::new();
    access.each_page(&format!("/admin/v1/quotas?{query}"), |path| {
        let page: Page = access.ask("GET", path, "")?;
        tenants.extend(page.quotas);
        Ok(page.next_cursor)
    })?;
    output::answer(access.json, &tenants, || Ok(table(&tenants)))
}

/// Prints an answer: all of it as JSON, or what `text` makes of it.
fn print<T: for<'d> Deserialize<'d>>(
    access: &AdminAccess,
    answer: &serde_json::Value,
    text: impl FnOnce(T) -> String,
) -> Result<ExitCode> {
    output::answer(access.json, answer, || Ok(text(T::deserialize(answer)?)))
}

/// Prints a tenant that was changed: what it has now, after what has changed since `before`, and what looks like a slip.
pub(super) fn print_tenant(
    args: &TenantArgs,
    before: &KnownTenant,
    answer: &serde_json::Value,
) -> Result<ExitCode> {
    let tenant = TenantDocument::deserialize(answer)?;
    for warning in &tenant.warnings {
        output::complain(&format!("warning: {}", within_line(warning)));
    }
    output::answer(args.access.json, answer, || {
        let changes = changes(&before.quotas, &own(&tenant)?);
        let list: String = changes
            .iter()
            .map(|change| format!("  {}\n", within_line(&change.to_string())))
            .collect();
        let head = match before.version {
            Some(version) if version == tenant.version => "nothing to change\n\n".to_owned(),
            Some(version) => format!("version {version} -> {}\n{list}\n", tenant.version),
            None => format!("new\n{list}\n"),
        };
        Ok(format!("{}: {head}{}", args.tenant, tenant_text(tenant)))
    })
}

/// Reads a file, or standard input for `-`, of at most `most` bytes.
pub(in crate::commands) fn read(file: &Path, most: u64) -> Result<String> {
    let mut text = String::new();
    let read = match file.as_os_str() == "-" {
        true => std::io::stdin().take(most + 1).read_to_string(&mut text),
        false => {
            std::fs::File::open(file).and_then(|file| file.take(most + 1).read_to_string(&mut text))
        }
    };
    let bytes = read.with_context(|| format!("cannot read {}", file.display()))?;
    match bytes as u64 > most {
        true => Err(anyhow!("{} has more than {most} bytes", file.display())),
        false => Ok(text),
    }
}

pub(in crate::commands) fn tenant_text(tenant: TenantDocument) -> String {
    let (name, domain) = (within_line(&tenant.tenant), within_line(&tenant.domain));
    let mut text = format!("{name}, domain {domain}");
    if let Some(plan) = &tenant.plan {
        let _ = write!(text, ", plan {}", within_line(plan));
    }
    let _ = writeln!(text, ", version {}", tenant.version);
    for plan in &tenant.plans {
        let times = plan.term().in_words();
        let _ = writeln!(text, "  plan {}{times}", within_line(&plan.plan));
    }
    let mut rows = Vec::new();
    if let Some(limit) = &tenant.quotas.default {
        let is_own = |own: &TenantOverride| own.descriptor.is_empty();
        if !tenant.quotas.overrides.iter().any(is_own) {
            let window = limit.unit.as_deref().or(limit.window.as_deref());
            rows.push([
                "default".to_owned(),
                per(limit.requests_per_unit, window),
                "the plan".to_owned(),
            ]);
        }
    }
    rows.extend(tenant.quotas.overrides.iter().map(|own| {
        let window = own.unit.as_deref().or(own.window.as_deref());
        let times = own.term().in_words();
        [
            own.descriptor.to_string(),
            per(own.requests_per_unit, window),
            match own.steps {
                Some(1) => format!("the policy, 1 step{times}"),
                Some(steps) => format!("the policy, {steps} steps{times}"),
                None => format!("an override{times}"),
            },
        ]
    }));
    if !rows.is_empty() {
        text.push('\n');
        text.push_str(&output::headed(["DESCRIPTOR", "LIMIT", "FROM"], rows));
    }
    text
}

fn per(hits: u64, window: Option<&str>) -> String {
    format!("{hits} per {}", window.unwrap_or_default())
}

fn table(tenants: &[TenantDocument]) -> String {
    let heads = [
        "TENANT",
        "PLAN",
        "OVERRIDES",
        "DOMAIN",
        "VERSION",
        "CHANGED",
        "HASH",
    ];
    let row = |tenant: &TenantDocument| {
        [
            tenant.tenant.clone(),
            tenant.plan.clone().unwrap_or_else(|| "-".to_owned()),
            tenant.quotas.overrides.len().to_string(),
            tenant.domain.clone(),
            tenant.version.to_string(),
            tenant.updated_at.to_string(),
            tenant.hash.clone(),
        ]
    };
    output::headed(heads, tenants.iter().map(row))
}
