//! `ratekeeper quota get|set|list|delete` and `ratekeeper reset`: tenants of a running service.

use super::admin::{Condition, query};
use crate::cli::{AdminAccess, QuotaDelete, QuotaList, QuotaSet, TenantArgs};
use crate::output;
use crate::settings::percent_encoded;
use anyhow::{Context, Result, anyhow};
use ratekeeper_quota::{OverrideDocument, QuotaDocument, TenantDocument};
use ratekeeper_rules::Unit;
use serde::Deserialize;
use serde::de::IgnoredAny;
use std::fmt::Write as _;
use std::io::Read as _;
use std::path::Path;
use std::process::ExitCode;

/// The largest body that a service takes, by default.
const BODY_BYTES_MAX: u64 = 1 << 20;

/// The number of tenants that are asked for at once.
const PAGE: &str = "500";

pub(super) fn get(args: &TenantArgs) -> Result<ExitCode> {
    let answer = args.access.ask("GET", &path(args, ""), "")?;
    print(&args.access, &answer, tenant_text)
}

pub(super) fn set(args: &QuotaSet) -> Result<ExitCode> {
    let body = match &args.file {
        Some(file) => read(file, BODY_BYTES_MAX)?,
        None => serde_json::to_string(&document(args)?)?,
    };
    let condition = match (args.if_version, args.if_new) {
        (Some(version), _) => Condition::Version(version),
        (None, true) => Condition::Absent,
        (None, false) => Condition::Any,
    };
    let access = &args.tenant.access;
    let answer = access.ask_if("PUT", &path(&args.tenant, ""), &body, condition)?;
    print(access, &answer, tenant_text)
}

pub(super) fn delete(args: &QuotaDelete) -> Result<ExitCode> {
    let TenantArgs {
        api_key, access, ..
    } = &args.tenant;
    let condition = args.if_version.map_or(Condition::Any, Condition::Version);
    let path = path(&args.tenant, "");
    let _: serde_json::Value = access.ask_if("DELETE", &path, "", condition)?;
    if !access.json {
        output::print(&format!(
            "{api_key} has no plan or overrides of its own any more\n"
        ))?;
    }
    Ok(ExitCode::SUCCESS)
}

pub(super) fn reset(args: &TenantArgs) -> Result<ExitCode> {
    let answer = args.access.ask("POST", &path(args, "/reset"), "")?;
    print(&args.access, &answer, |_: IgnoredAny| {
        format!("the usage of {} is reset to zero\n", args.api_key)
    })
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
        ("tier", args.plan.as_deref()),
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

fn path(args: &TenantArgs, end: &str) -> String {
    // The colon of `hash:` is one of few characters that mean something: it may stand in a path.
    let named = match args.api_key.strip_prefix("hash:") {
        Some(hash) => format!("hash:{}", percent_encoded(hash)),
        None => percent_encoded(&args.api_key),
    };
    let domain = args.domain.as_deref().map(percent_encoded);
    let query = domain.map_or_else(String::new, |domain| format!("?domain={domain}"));
    format!("/admin/v1/quotas/{named}{end}{query}")
}

/// Prints an answer: all of it as JSON, or what `text` makes of it.
fn print<T: for<'d> Deserialize<'d>>(
    access: &AdminAccess,
    answer: &serde_json::Value,
    text: impl FnOnce(T) -> String,
) -> Result<ExitCode> {
    output::answer(access.json, answer, || Ok(text(T::deserialize(answer)?)))
}

fn document(args: &QuotaSet) -> Result<QuotaDocument> {
    let time = |flag: &str, text: &Option<String>| {
        let time = text.as_deref().map(str::parse).transpose();
        time.with_context(|| format!("--{flag}"))
    };
    let overrides = args.overrides.iter().map(|text| own_limit(text));
    Ok(QuotaDocument {
        tier: args.plan.clone(),
        tiers: Vec::new(),
        overrides: overrides.collect::<Result<_>>()?,
        effective_at: time("effective-at", &args.effective_at)?,
        expires_at: time("expires-at", &args.expires_at)?,
    })
}

/// The override that `text` writes as `endpoint:POST /orders=500/minute`.
fn own_limit(text: &str) -> Result<OverrideDocument> {
    let wrong = || {
        anyhow!(
            "--override {text}: write DESCRIPTOR=HITS/WINDOW, as in 'endpoint:POST /orders=500/minute' or default=20/10s"
        )
    };
    let (descriptor, limit) = text.rsplit_once('=').ok_or_else(wrong)?;
    let (hits, window) = limit.split_once('/').ok_or_else(wrong)?;
    let is_unit = Unit::from_name(window).is_some();
    let window = Some(window.to_owned());
    let (unit, window) = if is_unit {
        (window, None)
    } else {
        (None, window)
    };
    Ok(OverrideDocument {
        descriptor: descriptor.parse().with_context(wrong)?,
        requests_per_unit: hits.parse().ok().ok_or_else(wrong)?,
        unit,
        window,
        ..OverrideDocument::default()
    })
}

/// Reads a file, or standard input for `-`, of at most `most` bytes.
pub(super) fn read(file: &Path, most: u64) -> Result<String> {
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

fn tenant_text(tenant: TenantDocument) -> String {
    let mut text = format!("{}, domain {}", tenant.api_key, tenant.domain);
    if let Some(tier) = &tenant.tier {
        let _ = write!(text, ", plan {tier}");
    }
    let _ = writeln!(text, ", version {}", tenant.version);
    for plan in &tenant.tiers {
        let times = times(plan.effective_at, plan.expires_at);
        let _ = writeln!(text, "  plan {}{times}", plan.tier);
    }
    let mut rows = Vec::new();
    if let Some(limit) = &tenant.quotas.default {
        let is_own = |own: &OverrideDocument| own.descriptor.0.is_empty();
        if !tenant.quotas.overrides.iter().any(is_own) {
            let window = limit.unit.as_ref().or(limit.window.as_ref());
            rows.push([
                "default".to_owned(),
                per(limit.requests_per_unit, window),
                "the plan".to_owned(),
            ]);
        }
    }
    rows.extend(tenant.quotas.overrides.iter().map(|own| {
        let window = own.unit.as_ref().or(own.window.as_ref());
        let times = times(own.effective_at, own.expires_at);
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

fn per(hits: u64, window: Option<&String>) -> String {
    format!("{hits} per {}", window.map_or("", |window| window))
}

fn times<T: std::fmt::Display>(from: Option<T>, until: Option<T>) -> String {
    let from = from.map_or_else(String::new, |time| format!(" from {time}"));
    let until = until.map_or_else(String::new, |time| format!(" until {time}"));
    from + &until
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
            tenant.api_key.clone(),
            tenant.tier.clone().unwrap_or_else(|| "-".to_owned()),
            tenant.quotas.overrides.len().to_string(),
            tenant.domain.clone(),
            tenant.version.to_string(),
            tenant.updated_at.to_string(),
            tenant.hash.clone(),
        ]
    };
    output::headed(heads, tenants.iter().map(row))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_override_is_a_descriptor_and_a_limit() {
        let own = own_limit("endpoint:GET /a?b=c=500/minute").expect("it is right");
        assert_eq!(own.descriptor.0, ["endpoint:GET /a?b=c"]);
        assert_eq!(
            (own.requests_per_unit, own.unit.as_deref()),
            (500, Some("minute"))
        );
        let own = own_limit("default=20/10s").expect("it is right");
        assert!(own.descriptor.0.is_empty());
        assert_eq!((own.unit, own.window.as_deref()), (None, Some("10s")));
        let own = own_limit("[\"a:1\",\"b:2\"]=1/s").expect("it is right");
        assert_eq!(own.descriptor.0, ["a:1", "b:2"]);
        for wrong in [
            "",
            "a:b",
            "a:b=",
            "a:b=5",
            "a:b=x/minute",
            "a:b=-1/minute",
            "[1]=5/s",
        ] {
            assert!(own_limit(wrong).is_err(), "{wrong}");
        }
    }
}
