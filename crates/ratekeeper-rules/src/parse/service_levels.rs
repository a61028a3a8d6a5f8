//! `slas:`, the service levels of an HTTP API.

use std::rc::Rc;

use ratekeeper_core::{Algorithm, Limit, Micros};

use super::context::Context;
use super::fields::{At, Fields, not_a_map};
use super::limits::{checked_limit, parse_id};
use super::policy::Policy;
use crate::report::Report;
use crate::slas::{PathPattern, ServiceLevel};
use crate::window::parse_duration;
use crate::yaml::{Kind, Mark, Node, Resolved, Scalar};

/// Reads a list of service levels; what is wrong with them has been reported.
pub(super) fn parse_service_levels(
    items: &[Rc<Node>],
    base: Option<&PathPattern>,
    report: &mut Report<'_>,
) -> Vec<ServiceLevel> {
    if let Some(first) = items.first() {
        let message = "service levels are checked, but not enforced by this version: there is no gateway in it";
        report.warn(first.mark, message, None);
    }
    let mut levels = Vec::new();
    for item in items {
        if item.as_map().is_none() {
            not_a_map(item, report);
        } else if let Some(fields) = Fields::new(item, Context::ServiceLevel, report) {
            levels.extend(parse_level(&fields, base, report));
        }
    }
    levels
}

fn parse_level(
    fields: &Fields<'_>,
    base: Option<&PathPattern>,
    report: &mut Report<'_>,
) -> Option<ServiceLevel> {
    let id = parse_id(fields, report);
    if !fields.has("id") {
        report.error(
            fields.mark,
            "a service level needs an id",
            "write `id: get-product`",
        );
    }
    let enabled = fields.boolean("enabled", report).is_none_or(|at| at.value);
    let tiers = parse_tiers(fields, report);
    let (methods, pattern) = parse_match(fields, report)?;
    Some(ServiceLevel {
        id: id?.value,
        enabled,
        methods,
        pattern: pattern?,
        base: base.cloned(),
        tiers,
        place: report.place(fields.mark),
    })
}

/// Methods and path, under `match:` or beside the id.
fn parse_match(
    fields: &Fields<'_>,
    report: &mut Report<'_>,
) -> Option<(Vec<Box<str>>, Option<PathPattern>)> {
    let nested = match fields.get("match") {
        Some(node) => Some(Fields::new(node, Context::ServiceMatch, report)?),
        None => None,
    };
    let outer = ["methods", "pathPattern"]
        .into_iter()
        .find_map(|key| fields.key_mark(key));
    if let (Some(_), Some(mark)) = (nested, outer) {
        report.error(
            mark,
            "methods and pathPattern stand under `match` or beside it, not both",
            "move it into `match:`",
        );
    }
    let fields = nested.unwrap_or(*fields);
    let mut methods: Vec<Box<str>> = Vec::new();
    for At { value, mark } in fields.texts("methods", report) {
        let is_token = value
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte));
        if is_token {
            methods.push(value.to_ascii_uppercase().into());
        } else {
            report.error(
                mark,
                format!("'{value}' is no HTTP method"),
                "write `methods: [GET, POST]`",
            );
        }
    }
    let pattern = parse_pattern(&fields, report);
    Some((methods, pattern))
}

fn parse_pattern(fields: &Fields<'_>, report: &mut Report<'_>) -> Option<PathPattern> {
    let Some(At { value, mark }) = fields.text("pathPattern", report) else {
        if !fields.has("pathPattern") {
            report.error(
                fields.mark,
                "there is no `pathPattern`",
                "write `pathPattern: /product/*`",
            );
        }
        return None;
    };
    match PathPattern::parse(value) {
        Ok(pattern) => Some(pattern),
        Err(why) => {
            let help = "a path such as `/product/*`: `*` is one segment, `**` the rest, `{name}` a variable";
            report.error(mark, why, help);
            None
        }
    }
}

fn parse_tiers(fields: &Fields<'_>, report: &mut Report<'_>) -> Vec<Limit> {
    let items = fields.list("tiers", report).unwrap_or_default();
    if items.is_empty()
        && fields
            .get("tiers")
            .is_none_or(|node| node.as_list().is_some())
    {
        let mark = fields.key_mark("tiers").unwrap_or(fields.mark);
        report.error(
            mark,
            "a service level needs at least one tier",
            "write `tiers: [ { period: 10, threshold: 1000 } ]`",
        );
    }
    let mut tiers: Vec<(Mark, Limit)> = Vec::new();
    for item in items {
        if item.as_map().is_none() {
            not_a_map(item, report);
            continue;
        }
        let Some((mark, tier)) = parse_tier(item, report) else {
            continue;
        };
        let twin = tiers.iter().find(|(_, other)| {
            other.algorithm() == tier.algorithm() && other.window() == tier.window()
        });
        if let Some((twin, _)) = twin {
            let message = format!("a tier of the same period is on line {}", twin.line);
            report.error(mark, message, "keep the smaller one");
        }
        tiers.push((mark, tier));
    }
    tiers.into_iter().map(|(_, tier)| tier).collect()
}

fn parse_tier(item: &Node, report: &mut Report<'_>) -> Option<(Mark, Limit)> {
    let fields = Fields::new(item, Context::Tier, report)?;
    let algorithm = Policy::parse(&fields, report)
        .algorithm
        .unwrap_or(Algorithm::FixedWindow);
    let period = parse_period(&fields, report);
    let threshold = fields.hits("threshold", report);
    if !fields.has("threshold") {
        report.error(
            fields.mark,
            "a tier needs a `threshold`",
            "write `threshold: 1000`: calls a period",
        );
    }
    let limit = checked_limit(
        &fields,
        algorithm,
        threshold?.value,
        (period?, false),
        report,
    )?;
    Some((fields.mark, limit))
}

/// Whole seconds, or a duration with its unit.
fn parse_period(fields: &Fields<'_>, report: &mut Report<'_>) -> Option<Micros> {
    let Some(node) = fields.get("period") else {
        report.error(
            fields.mark,
            "a tier needs a `period`",
            "write `period: 10`: seconds",
        );
        return None;
    };
    let period = match &node.kind {
        Kind::Scalar(Scalar {
            resolved: Resolved::Int(seconds),
            ..
        }) => u64::try_from(*seconds).ok().map(Micros::from_secs),
        Kind::Scalar(scalar) => parse_duration(&scalar.text).ok(),
        _ => None,
    };
    let period = period.filter(|period| !period.is_zero());
    if period.is_none() {
        report.error(
            node.mark,
            "`period` is at least 1 second",
            "write `period: 10`, or `period: 500ms`",
        );
    }
    period
}
