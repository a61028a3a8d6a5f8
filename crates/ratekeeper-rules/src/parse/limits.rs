//! Reads one limit: a quota, a window and an algorithm.

use ratekeeper_core::MAX_COUNT;

use super::context::Context;
use super::fields::{At, Fields};
use super::policy::Policy;
use crate::draft::{BuiltLimit, LimitDefaults, LimitDraft};
use crate::report::Report;
use crate::yaml::Node;

/// Reads a limit of `rate_limit:` or of a plan. [`None`] if it is wrong, which has been reported.
pub(crate) fn parse_limit(
    node: &Node,
    context: Context,
    around: LimitDefaults<'_>,
    report: &mut Report<'_>,
) -> Option<BuiltLimit> {
    let fields = Fields::new(node, context, report)?;
    read_limit(&fields, report).build(around, report)
}

/// Reads the limit of a mapping whose keys have been checked.
pub(crate) fn read_limit(fields: &Fields<'_>, report: &mut Report<'_>) -> LimitDraft {
    let name: Option<Box<str>> = fields
        .text("name", report)
        .filter(|at| !at.value.is_empty())
        .map(|at| at.value.into());
    let policy = Policy::parse(fields, report);
    LimitDraft {
        replaces: parse_replaces(fields, name.as_deref(), report),
        name,
        id: parse_id(fields, report),
        algorithm: fields.read("algorithm", |_, _| policy.algorithm, report),
        policy,
        unlimited: fields.read_boolean("unlimited", report),
        requests_per_unit: fields.read_count("requests_per_unit", u64::from(u32::MAX), report),
        limit: fields.read_count("limit", MAX_COUNT, report),
        unit: fields.read_text("unit", report),
        window: fields.read_duration("window", report),
        calendar: fields.read_text("calendar", report),
        ..read_form(fields, report)
    }
}

/// Reads the keys that give an algorithm its form.
pub(super) fn read_form(fields: &Fields<'_>, report: &mut Report<'_>) -> LimitDraft {
    LimitDraft {
        burst: fields.read_count("burst", MAX_COUNT, report),
        sub_windows: fields.read_count("sub_windows", u64::from(u32::MAX), report),
        strict: fields.read_boolean("strict", report),
        post_paid: fields.read_boolean("post_paid", report),
        max_debt: fields.read_count("max_debt", MAX_COUNT, report),
        ..LimitDraft::at(fields.mark)
    }
}

pub(crate) fn parse_id(fields: &Fields<'_>, report: &mut Report<'_>) -> Option<At<Box<str>>> {
    let id = fields.text("id", report)?;
    let is_good = (1..=200).contains(&id.value.len()) && !id.value.chars().any(char::is_control);
    if !is_good {
        let message = "an id has 1 to 200 bytes and no control characters";
        report.error(id.mark, message, None);
    }
    is_good.then(|| id.map(Into::into))
}

fn parse_replaces(
    fields: &Fields<'_>,
    name: Option<&str>,
    report: &mut Report<'_>,
) -> Vec<At<Box<str>>> {
    let mut names = Vec::new();
    for item in fields.list("replaces", report).unwrap_or_default() {
        let Some(entry) = Fields::item(item, Context::Replaces, report) else {
            continue;
        };
        let Some(replaced) = entry.text("name", report).filter(|at| !at.value.is_empty()) else {
            let help = "write `- name: other_limit`";
            report.error(item.mark, "should not have an empty replaces entry", help);
            continue;
        };
        if Some(replaced.value) == name {
            let help = "name another limit, or leave the entry out";
            report.error(
                replaced.mark,
                "replaces should not contain name of same descriptor",
                help,
            );
        }
        names.push(replaced.map(Into::into));
    }
    names
}
