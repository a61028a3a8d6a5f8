//! `ratekeeper quota import|export`: many tenants of a running service.

use super::admin::{Condition, query};
use super::quotas_live::read;
use crate::cli::{AdminAccess, QuotaExport, QuotaImport, QuotaUsage, TenantsForm};
use crate::output::{self, count};
use anyhow::{Result, anyhow};
use ratekeeper_quota::{BulkFormat, BulkLine, read_tenants};
use serde::{Deserialize, Serialize};
use std::process::ExitCode;

/// The largest file that is imported.
const FILE_BYTES_MAX: u64 = 1 << 30;

/// The most tenants that are sent at once.
const TENANTS_MAX: usize = 500;

/// The bytes beyond which no further tenant is added to what is sent at once: a service takes a megabyte.
const BYTES_MAX: usize = 512 << 10;

/// The answer to a part of an import, and the sum of all of them.
#[derive(Default, Serialize, Deserialize)]
struct Imported {
    tenants: usize,
    created: usize,
    updated: usize,
    unchanged: usize,
}

pub(super) fn import(args: &QuotaImport) -> Result<ExitCode> {
    let name = args.file.display();
    let text = read(&args.file, FILE_BYTES_MAX)?;
    let is_csv = args.file.extension().is_some_and(|end| end == "csv");
    let format = match args.format {
        Some(TenantsForm::Csv) => BulkFormat::Csv,
        None if is_csv => BulkFormat::Csv,
        Some(TenantsForm::Jsonl) | None => BulkFormat::JsonLines,
    };
    let lines = read_tenants(format, &text).map_err(|bad| match bad.field.as_str() {
        "" => anyhow!("{name}:{}: {bad}", bad.line),
        field => anyhow!("{name}:{}: {field}: {bad}", bad.line),
    })?;
    let mut sum = Imported::default();
    for part in parts(&lines) {
        let Part {
            text,
            first,
            tenants,
        } = part;
        let path = match args.dry_run {
            true => "/admin/v1/import/quotas?dry_run=true",
            false => "/admin/v1/import/quotas",
        };
        let answer: Result<Imported> = args.access.ask("POST", path, &text);
        let done = answer.map_err(|error| {
            if let Some(line) = line_of(&error.to_string(), &lines[tenants..]) {
                return error.context(format!("{name}:{line}"));
            }
            let before = count(sum.tenants, "tenant");
            let at = count(first, "line");
            error.context(match args.dry_run {
                true => format!("{name}: {before} checked; in the part that begins after {at}"),
                false => format!("{name}: {before} imported; in the part that begins after {at}"),
            })
        })?;
        sum.tenants += done.tenants;
        sum.created += done.created;
        sum.updated += done.updated;
        sum.unchanged += done.unchanged;
    }
    let tenants = count(sum.tenants, "tenant");
    output::answer(args.access.json, &sum, || {
        Ok(match args.dry_run {
            true => format!("{tenants} can be imported\n"),
            false => format!(
                "{tenants}: {} new, {} changed, {} as they were\n",
                sum.created, sum.updated, sum.unchanged
            ),
        })
    })
}

/// A part of a file that is sent at once, as JSON lines, and the number of lines before it.
struct Part {
    text: String,
    first: usize,
    /// The number of tenants before it.
    tenants: usize,
}

/// The line of the file that an answer means by `line 3: overrides[1].unit`: the third tenant of `lines`, and its
/// second override.
fn line_of(answer: &str, lines: &[BulkLine]) -> Option<u64> {
    let (_, rest) = answer.split_once("line ")?;
    let (number, field) = rest.split_once(": ").unwrap_or((rest, ""));
    let tenant = lines.get(number.parse::<usize>().ok()?.checked_sub(1)?)?;
    let at = |list: &str| {
        let (number, _) = field.strip_prefix(list)?.split_once(']')?;
        number.parse::<usize>().ok()
    };
    let own = match (at("overrides["), at("tiers[")) {
        (Some(at), _) => tenant.overrides.get(at),
        (None, Some(at)) => tenant.tiers.get(at),
        (None, None) => None,
    };
    Some(own.copied().unwrap_or(tenant.line))
}

fn parts(lines: &[BulkLine]) -> Vec<Part> {
    let mut parts: Vec<Part> = Vec::new();
    let mut room = 0;
    for (number, BulkLine { line, tenant, .. }) in lines.iter().enumerate() {
        let written = tenant.written(BulkFormat::JsonLines);
        let is_full = |part: &Part| room == 0 || part.text.len() + written.len() > BYTES_MAX;
        if parts.last().is_none_or(is_full) {
            let first = usize::try_from(line.saturating_sub(1)).unwrap_or(usize::MAX);
            let text = String::new();
            parts.push(Part {
                text,
                first,
                tenants: number,
            });
            room = TENANTS_MAX;
        }
        room -= 1;
        if let Some(part) = parts.last_mut() {
            part.text.push_str(&written);
        }
    }
    parts
}

pub(super) fn export(args: &QuotaExport) -> Result<ExitCode> {
    let query = query([
        ("format", Some(form(args.format))),
        ("limit", Some("500")),
        ("domain", args.domain.as_deref()),
    ]);
    print_pages(&args.access, &format!("/admin/v1/export/quotas?{query}"))
}

pub(super) fn usage(args: &QuotaUsage) -> Result<ExitCode> {
    let query = query([
        ("format", Some(form(args.format))),
        ("from", args.from.as_deref()),
        ("until", args.until.as_deref()),
        ("api_key", args.tenant.as_deref()),
        ("domain", args.domain.as_deref()),
    ]);
    print_pages(&args.access, &format!("/admin/v1/export/usage?{query}"))
}

const fn form(form: TenantsForm) -> &'static str {
    match form {
        TenantsForm::Jsonl => "jsonl",
        TenantsForm::Csv => "csv",
    }
}

/// Prints all pages of an export as they come.
fn print_pages(access: &AdminAccess, path: &str) -> Result<ExitCode> {
    access.each_page(path, |path| {
        let answer = access.send("GET", path, "", Condition::Any)?;
        output::print_data(&answer.body)?;
        Ok(answer.header("x-next-cursor").map(str::to_owned))
    })?;
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mistake_has_the_line_of_its_part() {
        let text = "api_key,tier,descriptor,requests_per_unit,unit\n\
                    acme,pro,,,\n\
                    bob,free,a:1,5,minute\n\
                    bob,free,a:2,5,minutes\n";
        let lines = read_tenants(BulkFormat::Csv, text).expect("it is CSV");
        let of = |answer: &str| line_of(answer, &lines);
        assert_eq!(of("400: line 2: overrides[1].unit: no unit"), Some(4));
        assert_eq!(of("400: line 2: overrides[0].unit: no unit"), Some(3));
        assert_eq!(of("400: line 1: tiers[0].tier: no plan"), Some(2));
        assert_eq!(of("400: line 2: domain: no domain"), Some(3));
        assert_eq!(of("400: line 3: tier"), None);
        assert_eq!(of("503: the database is away"), None);
    }
}
