//! Reads `shed:` at the top of a file.

use super::context::Context;
use super::fields::{At, Fields};
use super::nearest::nearest;
use super::service_levels::parse_methods;
use crate::http_token::is_token;
use crate::report::Report;
use crate::shed::{DEFAULT_PRIORITIES, PRIORITIES_MAX};
use crate::slas::PathPattern;
use crate::yaml::{Kind, Mark, Node};
use crate::{AdaptiveShed, Classifier, FleetShed, ShedMode, ShedRules, WorkerShed};

/// The most classifiers: they are tried one after the other for each request.
const CLASSIFIERS_MAX: usize = 256;
/// The largest capacity and limit.
const REQUESTS_MAX: u64 = 1_000_000;

/// Reads `shed:`; errors have been reported.
pub(super) fn parse_shed(fields: &Fields<'_>, report: &mut Report<'_>) -> Option<At<ShedRules>> {
    let mark = fields.key_mark("shed")?;
    let node = fields.get("shed")?;
    let fields = Fields::new(node, Context::Shed, report)?;
    let mode = mode(&fields, ShedMode::default(), report);
    let priorities = priorities(&fields, report);
    let (reads, writes) = defaults(&fields, &priorities, report);
    let rules = ShedRules {
        classifiers: classifiers(&fields, &priorities, report),
        fleet: section(&fields, "fleet", Context::Fleet, report)
            .and_then(|fields| fleet(&fields, mode, report)),
        workers: section(&fields, "workers", Context::Workers, report)
            .map(|fields| workers(&fields, mode, report)),
        adaptive: section(&fields, "adaptive", Context::Adaptive, report)
            .map(|fields| adaptive(&fields, mode, report)),
        priorities,
        reads,
        writes,
    };
    if rules.fleet.is_none() && rules.workers.is_none() && rules.adaptive.is_none() {
        report.warn(
            mark,
            "`shed` names no shedder, so nothing is shed",
            "add `workers: {}` and `adaptive: {}`",
        );
    }
    Some(At { value: rules, mark })
}

/// The keys of a shedder; None if the file does not have it.
fn section<'t>(
    fields: &Fields<'t>,
    key: &str,
    context: Context,
    report: &mut Report<'_>,
) -> Option<Fields<'t>> {
    Fields::new(fields.get(key)?, context, report)
}

fn mode(fields: &Fields<'_>, outer: ShedMode, report: &mut Report<'_>) -> ShedMode {
    fields.choice("mode", report).map_or(outer, |at| at.value)
}

fn priorities(fields: &Fields<'_>, report: &mut Report<'_>) -> Vec<Box<str>> {
    let mut names: Vec<Box<str>> = Vec::new();
    for At { value, mark } in fields.texts("priorities", report) {
        if names.iter().any(|name| **name == *value) {
            let message = format!("the priority '{value}' is there twice");
            report.error(mark, message, "leave one of them out");
        } else if names.len() >= PRIORITIES_MAX {
            let message = format!("there are at most {PRIORITIES_MAX} priorities");
            report.error(mark, message, "join some of them");
        } else {
            names.push(value.into());
        }
    }
    match names.is_empty() {
        true => DEFAULT_PRIORITIES.map(Into::into).into(),
        false => names,
    }
}

/// The class that `key` names.
#[expect(clippy::cast_possible_truncation, reason = "at most 8 priorities")]
fn class(
    fields: &Fields<'_>,
    key: &str,
    priorities: &[Box<str>],
    report: &mut Report<'_>,
) -> Option<u8> {
    let At { value, mark } = fields.text(key, report)?;
    let found = priorities.iter().position(|name| **name == *value);
    if found.is_none() {
        let help = match nearest(value, priorities.iter().map(|name| &**name)) {
            Some(name) => format!("did you mean `{name}`?"),
            None => format!("the priorities are {}", priorities.join(", ")),
        };
        report.error(mark, format!("there is no priority '{value}'"), help);
    }
    found.map(|index| index as u8)
}

/// The classes of requests that no classifier matches: `default`, else those called read and write.
#[expect(clippy::cast_possible_truncation, reason = "at most 8 priorities")]
fn defaults(fields: &Fields<'_>, priorities: &[Box<str>], report: &mut Report<'_>) -> (u8, u8) {
    if fields.has("default") {
        let class = class(fields, "default", priorities, report).unwrap_or(0);
        return (class, class);
    }
    let of = |name: &str| priorities.iter().position(|it| **it == *name);
    if let (Some(reads), Some(writes)) = (of("read"), of("write")) {
        return (reads as u8, writes as u8);
    }
    let mark = fields.key_mark("priorities").unwrap_or(fields.mark);
    report.error(
        mark,
        "set `default`, or define the priorities 'read' and 'write'",
        format!("write `default: {}`", priorities[0]),
    );
    (0, 0)
}

fn classifiers(
    fields: &Fields<'_>,
    priorities: &[Box<str>],
    report: &mut Report<'_>,
) -> Vec<Classifier> {
    let items = fields.list("classify", report).unwrap_or_default();
    if let Some(item) = items.get(CLASSIFIERS_MAX) {
        let message = format!("`classify` has at most {CLASSIFIERS_MAX} items");
        report.error(item.mark, message, "use `*` and `**` in paths");
    }
    let mut classifiers = Vec::new();
    for item in items.iter().take(CLASSIFIERS_MAX) {
        let fields = Fields::item(item, Context::Classify, report);
        classifiers.extend(fields.and_then(|fields| classifier(&fields, priorities, report)));
    }
    classifiers
}

fn classifier(
    fields: &Fields<'_>,
    priorities: &[Box<str>],
    report: &mut Report<'_>,
) -> Option<Classifier> {
    if !fields.has("class") {
        let help = format!("write `class: {}`", priorities[priorities.len() - 1]);
        report.error(fields.mark, "there is no `class`", help);
    }
    let class = class(fields, "class", priorities, report);
    let methods = parse_methods(fields, report);
    let path = path(fields, report);
    let header = header(fields, report);
    let plan = fields.text("plan", report).map(|at| at.value.into());
    if !["methods", "pathPattern", "header", "plan"]
        .iter()
        .any(|key| fields.has(key))
    {
        report.error(
            fields.mark,
            "this matches every request",
            "add `methods`, `pathPattern`, `header` or `plan`; for all other requests write `default:` beside `classify:`",
        );
    }
    Some(Classifier {
        class: class?,
        methods,
        path,
        header,
        plan,
    })
}

fn path(fields: &Fields<'_>, report: &mut Report<'_>) -> Option<PathPattern> {
    let At { value, mark } = fields.text("pathPattern", report)?;
    let help = "a path such as `/product/*`: `*` is one segment, `**` the rest";
    let parsed = PathPattern::parse(value);
    parsed
        .map_err(|why| report.error(mark, why.to_string(), help))
        .ok()
}

fn header(fields: &Fields<'_>, report: &mut Report<'_>) -> Option<(Box<str>, Option<Box<str>>)> {
    let value = fields.text("value", report);
    let Some(At { value: name, mark }) = fields.text("header", report) else {
        if let Some(At { mark, .. }) = value {
            report.error(
                mark,
                "`value` needs a `header`",
                "name its header: `header: x-test`",
            );
        }
        return None;
    };
    if !is_token(name.as_bytes()) {
        let message = format!("'{name}' is not the name of a header");
        report.error(mark, message, "write `header: x-test`");
        return None;
    }
    let value = value.map(|at| at.value.into());
    Some((name.to_ascii_lowercase().into(), value))
}

fn fleet(fields: &Fields<'_>, outer: ShedMode, report: &mut Report<'_>) -> Option<FleetShed> {
    if !fields.has("capacity") {
        report.error(
            fields.mark,
            "`fleet` needs a `capacity`",
            "write `capacity: 1000`: the requests that all nodes together can work on at a time",
        );
    }
    let capacity = requests(fields, "capacity", report);
    let reserve = percent(fields, "reserve", report);
    let reserve = reserve.map_or((20, fields.mark), |at| (at.value, at.mark));
    if reserve.0 == 100 {
        report.error(
            reserve.1,
            "a `reserve` of 100% leaves nothing to requests that are not critical",
            "write `reserve: 20%`",
        );
    }
    Some(FleetShed {
        capacity: capacity?.value,
        reserve_percent: reserve.0,
        mode: mode(fields, outer, report),
    })
}

fn workers(fields: &Fields<'_>, outer: ShedMode, report: &mut Report<'_>) -> WorkerShed {
    let good = percent(fields, "good", report).map_or(70, |at| at.value);
    let bad = percent(fields, "bad", report);
    let bad_percent = bad.map_or(80, |at| at.value);
    if good >= bad_percent {
        let mark = bad.map(|at| at.mark).or(fields.key_mark("good"));
        report.error(
            mark.unwrap_or(fields.mark),
            format!("utilisation cannot be good up to {good}% and bad from {bad_percent}%"),
            "write `good: 70%` and `bad: 80%`",
        );
    }
    if good == 0 {
        let mark = fields.key_mark("good").unwrap_or(fields.mark);
        report.error(mark, "`good` is at least 1%", "write `good: 70%`");
    }
    WorkerShed {
        good_percent: good,
        bad_percent,
        mode: mode(fields, outer, report),
    }
}

fn adaptive(fields: &Fields<'_>, outer: ShedMode, report: &mut Report<'_>) -> AdaptiveShed {
    let min = requests(fields, "min", report).map_or(1, |at| at.value);
    let max = requests(fields, "max", report);
    let largest = max.map_or(1_000, |at| at.value);
    if min > largest {
        let mark = max.map(|at| at.mark).or(fields.key_mark("min"));
        report.error(
            mark.unwrap_or(fields.mark),
            format!("the smallest limit, {min}, is larger than the largest, {largest}"),
            "write `min: 1` and `max: 1000`",
        );
    }
    AdaptiveShed {
        min,
        max: largest,
        mode: mode(fields, outer, report),
    }
}

/// A number of requests, at least 1.
fn requests(fields: &Fields<'_>, key: &str, report: &mut Report<'_>) -> Option<At<u32>> {
    let count = fields.count(key, REQUESTS_MAX, report)?;
    if count.value == 0 {
        report.error(count.mark, format!("`{key}` is at least 1"), None);
        return None;
    }
    Some(count.map(|count| u32::try_from(count).unwrap_or(u32::MAX)))
}

/// A whole percentage from 0% to 100%.
pub(super) fn percent(fields: &Fields<'_>, key: &str, report: &mut Report<'_>) -> Option<At<u8>> {
    let node = fields.get(key)?;
    let mark = node.mark;
    let value = written(node).strip_suffix('%').and_then(percentage);
    if value.is_none() {
        let help = match percentage(written(node)) {
            Some(bare) => format!("write `{key}: {bare}%`"),
            None => format!("write `{key}: 20%`"),
        };
        complain(key, node, mark, help, report);
    }
    value.map(|value| At { value, mark })
}

fn written(node: &Node) -> &str {
    match &node.kind {
        Kind::Scalar(scalar) => &scalar.text,
        _ => node.kind_name(),
    }
}

fn percentage(text: &str) -> Option<u8> {
    let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let value = text.parse().ok().filter(|_| is_number)?;
    (value <= 100).then_some(value)
}

fn complain(key: &str, node: &Node, mark: Mark, help: String, report: &mut Report<'_>) {
    let message = format!(
        "`{key}` cannot be '{}': it is a whole percentage from 0% to 100%",
        written(node)
    );
    report.error(mark, message, help);
}
