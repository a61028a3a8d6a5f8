//! The top of a file: its domain, and how the domain is evaluated.

use std::collections::BTreeSet;
use std::rc::Rc;

use super::adjust::{ParsedAdjust, parse_adjust};
use super::context::Context;
use super::fields::{At, Fields};
use super::policy::Policy;
use super::service_levels::{LevelContext, ParsedLevel, parse_service_levels};
use super::shed::parse_shed;
use crate::report::Report;
use crate::slas::PathPattern;
use crate::tenants::CUSTOM;
use crate::yaml::{Mark, Node};
use crate::{Evaluation, ShedRules};

/// The most plans of a domain.
const PLANS_MAX: usize = 1_000;

/// The settings of a domain that one file has, apart from the descriptors.
#[derive(Debug, Default)]
pub(crate) struct Settings {
    pub(crate) evaluation: Option<At<Evaluation>>,
    pub(crate) tenant: Option<At<Box<str>>>,
    pub(crate) plans: Option<At<Vec<Box<str>>>>,
    pub(crate) secrets: BTreeSet<Box<str>>,
    pub(crate) policy: Policy,
}

/// The top of one file.
#[derive(Debug, Default)]
pub(crate) struct Root<'t> {
    /// [`None`] in a file of service levels only.
    pub(crate) domain: Option<At<&'t str>>,
    pub(crate) settings: Settings,
    pub(crate) descriptors: Option<&'t [Rc<Node>]>,
    pub(crate) service_levels: Vec<ParsedLevel>,
    pub(crate) tenants: Option<Tenants<'t>>,
    pub(crate) shed: Option<At<ShedRules>>,
    pub(crate) adjust: Option<At<ParsedAdjust>>,
}

/// The `tenants:` of one file, not read yet: that takes the rules of all files.
#[derive(Debug)]
pub(crate) struct Tenants<'t> {
    /// The domain that the file names.
    pub(crate) domain: Option<At<&'t str>>,
    pub(crate) items: &'t [Rc<Node>],
    pub(crate) mark: Mark,
}

/// Defaults that apply to all files.
pub(crate) struct Defaults {
    pub(crate) slas_base: Option<PathPattern>,
}

/// Reads the top of a file; [`None`] if it has none, which has been reported.
pub(crate) fn parse_root<'t>(
    tree: Option<&'t Node>,
    defaults: &Defaults,
    report: &mut Report<'_>,
) -> Option<Root<'t>> {
    let Some(tree) = tree.filter(|tree| !tree.is_null()) else {
        empty_domain(Mark::START, report);
        return None;
    };
    if let Some(levels) = tree.as_list().filter(|levels| !levels.is_empty()) {
        let around = LevelContext {
            base: defaults.slas_base.as_ref(),
            policy: &Policy::default(),
        };
        let service_levels = parse_service_levels(levels, around, report);
        return Some(Root {
            service_levels,
            ..Root::default()
        });
    }
    let fields = Fields::new(tree, Context::Root, report)?;
    let settings = parse_settings(&fields, report);
    let service_levels = parse_slas(&fields, defaults, &settings.policy, report);
    let domain = fields
        .text("domain", report)
        .filter(|at| !at.value.is_empty());
    let tenants = parse_tenants(&fields, domain, report);
    let shed = parse_shed(&fields, report);
    let adjust = parse_adjust(&fields, report);
    let only_levels = (fields.has("slas") || tenants.is_some() || fields.has("shed"))
        && fields.key_mark("domain").is_none()
        && !fields.has("descriptors")
        && !fields.has("adjust");
    if domain.is_none() && !only_levels && fields.get("domain").is_none_or(is_empty_text) {
        empty_domain(
            fields.get("domain").map_or(fields.mark, |node| node.mark),
            report,
        );
    }
    // A file of tenants alone belongs to a domain, and is none of the files that make it.
    let is_apart = tenants.is_some() && has_nothing_else(&fields);
    Some(Root {
        domain: domain.filter(|_| !is_apart),
        settings,
        descriptors: fields.list("descriptors", report),
        service_levels,
        tenants,
        shed,
        adjust,
    })
}

fn parse_tenants<'t>(
    fields: &Fields<'t>,
    domain: Option<At<&'t str>>,
    report: &mut Report<'_>,
) -> Option<Tenants<'t>> {
    let mark = fields.key_mark("tenants")?;
    let items = fields.list("tenants", report).unwrap_or_default();
    Some(Tenants {
        domain,
        items,
        mark,
    })
}

/// Returns true if a file has no key that says anything about a domain or a service level.
fn has_nothing_else(fields: &Fields<'_>) -> bool {
    let mut others = Context::Root.keys().iter();
    others.all(|key| matches!(key.as_str(), "domain" | "tenants") || fields.key_mark(key).is_none())
}

/// Returns true if a `domain` that was not accepted is empty text: any other fault has been
/// reported.
fn is_empty_text(node: &Node) -> bool {
    matches!(&node.kind, crate::yaml::Kind::Scalar(scalar) if scalar.text.is_empty())
}

fn empty_domain(mark: Mark, report: &mut Report<'_>) {
    report.error(
        mark,
        "config file cannot have empty domain",
        "start it with `domain: some_name`",
    );
}

fn parse_settings(fields: &Fields<'_>, report: &mut Report<'_>) -> Settings {
    let tenant = fields
        .text("tenant", report)
        .filter(|at| !at.value.is_empty());
    Settings {
        evaluation: fields.choice("evaluation", report),
        tenant: tenant.map(|at| at.map(Into::into)),
        plans: parse_plan_names(fields, report),
        secrets: fields
            .texts("secrets", report)
            .into_iter()
            .map(|at| at.value.into())
            .collect(),
        policy: Policy::parse(fields, report),
    }
}

fn parse_plan_names(fields: &Fields<'_>, report: &mut Report<'_>) -> Option<At<Vec<Box<str>>>> {
    let mark = fields.key_mark("plans")?;
    let mut names: Vec<Box<str>> = Vec::new();
    for name in fields.texts("plans", report) {
        if names.iter().any(|known| **known == *name.value) {
            report.error(
                name.mark,
                format!("plan '{}' is there twice", name.value),
                "leave one of them out",
            );
        } else if name.value == CUSTOM {
            report.error(
                name.mark,
                format!("a plan cannot be called '{CUSTOM}': limits that one tenant has alone are"),
                "choose another name",
            );
        } else {
            names.push(name.value.into());
        }
    }
    if names.len() > PLANS_MAX {
        let message = format!("a domain has at most {PLANS_MAX} plans");
        report.error(mark, message, "give single tenants `overrides` instead");
    }
    Some(At { value: names, mark })
}

fn parse_slas(
    fields: &Fields<'_>,
    defaults: &Defaults,
    policy: &Policy,
    report: &mut Report<'_>,
) -> Vec<ParsedLevel> {
    let own = fields.text("slas_base", report);
    let base = match own.map(|at| (PathPattern::parse(at.value), at.mark)) {
        None => defaults.slas_base.clone(),
        Some((Ok(base), mark)) if base.has_rest() => {
            report.error(
                mark,
                "a base cannot end in `**`",
                "write the path up to where the patterns start",
            );
            None
        }
        Some((Ok(base), _)) => Some(base),
        Some((Err(error), mark)) => {
            report.error(
                mark,
                error.to_string(),
                "write `slas_base: /v1/organizations/{tenant}`",
            );
            None
        }
    };
    let levels = fields.list("slas", report).unwrap_or_default();
    let around = LevelContext {
        base: base.as_ref(),
        policy,
    };
    parse_service_levels(levels, around, report)
}
