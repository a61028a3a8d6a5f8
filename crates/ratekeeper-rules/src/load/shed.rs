//! The `shed:` of all files, and warnings of what it says in vain.

use super::domain::DomainBuilder;
use crate::mark::At;
use crate::nearest::nearest;
use crate::parse::root::Root;
use crate::parse::shed::ParsedShed;
use crate::report::Report;
use crate::{Classifier, PathFolding, PathPattern, Segment, ShedRules};

/// The `shed:` of all files: at most one may have it.
pub(super) fn compile(
    roots: &mut [Root],
    domains: &[DomainBuilder],
    folding: PathFolding,
    reports: &mut [Report<'_>],
) -> Option<ShedRules> {
    let mut found: Option<(ShedRules, String)> = None;
    for (root, report) in roots.iter_mut().zip(reports) {
        let Some(At { value, mark }) = root.shed.take() else {
            continue;
        };
        if let Some((_, place)) = &found {
            report.error(
                mark,
                "`shed` is in two files",
                format!("it is at {place} already: keep one of them"),
            );
            continue;
        }
        // An item without a condition that was refused would match all requests.
        if value.is_whole {
            check_order(&value, folding, report);
            check_reserve(&value, report);
        }
        check_plans(&value, domains, report);
        let rules = ShedRules {
            path_folding: folding,
            ..value.rules
        };
        found = Some((rules, report.place(mark).to_string()));
    }
    found.map(|(shed, _)| shed)
}

/// Warns of items that never decide, because an earlier one matches all that they do.
fn check_order(shed: &ParsedShed, folding: PathFolding, report: &mut Report<'_>) {
    let items = &shed.rules.classifiers;
    for (number, item) in items.iter().enumerate() {
        let earlier = items.iter().take(number);
        let mut marked = earlier.zip(&shed.items).enumerate();
        let Some((by, (earlier, place))) =
            marked.find(|(_, (earlier, _))| covers(earlier, item, folding))
        else {
            continue;
        };
        let Some(own) = shed.items.get(number) else {
            continue;
        };
        let help = match earlier.class == item.class {
            true => "leave it out",
            false => "put it before that one",
        };
        let message = format!(
            "this decides nothing: item {}, on line {}, matches all that it matches",
            by + 1,
            place.item.line
        );
        report.warn(own.item, message, help);
    }
}

/// Returns true if `one` matches all requests that `other` matches.
fn covers(one: &Classifier, other: &Classifier, folding: PathFolding) -> bool {
    let is_method = one.methods.is_empty()
        || !other.methods.is_empty() && other.methods.iter().all(|name| one.methods.contains(name));
    let is_path = one.path.as_ref().is_none_or(|path| {
        let other = other.path.as_ref();
        other.is_some_and(|other| covers_path(path, other, folding))
    });
    let is_header = one.header.as_ref().is_none_or(|(name, value)| {
        let other = other.header.as_ref().filter(|(other, _)| name == other);
        other.is_some_and(|(_, other)| value.is_none() || value == other)
    });
    let is_plan = one.plan.is_none() || one.plan == other.plan;
    is_method && is_path && is_header && is_plan
}

/// Returns true if `one` matches all paths that `other` matches.
fn covers_path(one: &PathPattern, other: &PathPattern, folding: PathFolding) -> bool {
    let mut rest = other.segments().iter();
    for segment in one.segments() {
        let is_met = match (segment, rest.next()) {
            (Segment::Rest, _) => return true,
            (Segment::Literal(one), Some(Segment::Literal(other))) => folding.is_same(one, other),
            (Segment::Any | Segment::Variable(_), Some(other)) => *other != Segment::Rest,
            (Segment::Literal(_), Some(_)) | (_, None) => false,
        };
        if !is_met {
            return false;
        }
    }
    rest.next().is_none()
}

/// Warns of a part of the fleet that is kept for a class which no request is in.
fn check_reserve(shed: &ParsedShed, report: &mut Report<'_>) {
    let ParsedShed { rules, fleet, .. } = shed;
    let (Some(terms), Some(mark)) = (rules.fleet, *fleet) else {
        return;
    };
    let top = rules.priorities.len().saturating_sub(1);
    let classes = rules.classifiers.iter().map(|it| it.class);
    let mut classes = classes.chain([rules.reads, rules.writes]);
    // All of it is refused anyway.
    let is_part = (1..100).contains(&terms.reserve_percent);
    if !is_part || classes.any(|class| usize::from(class) == top) {
        return;
    }
    let name = rules.name(top);
    let message = format!(
        "{}% of the capacity is kept for the class '{name}', and no request is in it",
        terms.reserve_percent
    );
    let help =
        format!("add an item with `class: {name}` to `classify`, or write `reserve: 0%` here");
    report.warn(mark, message, help);
}

/// Warns of plans that no domain has.
fn check_plans(shed: &ParsedShed, domains: &[DomainBuilder], report: &mut Report<'_>) {
    let plans = domains.iter().filter_map(|it| it.settings.plans.as_ref());
    let known: Vec<&str> = plans.flat_map(|at| &at.value).map(|name| &**name).collect();
    for (item, place) in shed.rules.classifiers.iter().zip(&shed.items) {
        let (Some(plan), Some(mark)) = (&item.plan, place.plan) else {
            continue;
        };
        if known.contains(&&**plan) {
            continue;
        }
        let help = match nearest(plan, known.iter().copied()) {
            Some(name) => format!("did you mean `{name}`?"),
            None if known.is_empty() => {
                format!("name the plans of a domain: `plans: [free, {plan}]`")
            }
            None => format!("the plans are {}", known.join(", ")),
        };
        report.warn(mark, format!("no domain has the plan '{plan}'"), help);
    }
}
