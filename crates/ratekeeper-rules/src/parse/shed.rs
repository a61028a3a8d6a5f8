//! Checks `shed:` at the top of a file.

use std::rc::Rc;

use super::service_levels::check_methods;
use crate::draft::Field;
use crate::format::mapping::read_item;
use crate::format::{Adaptive, Classify, Fleet, Shed, Workers};
use crate::http_token::is_token;
use crate::mark::{At, Mark};
use crate::nearest::nearest;
use crate::report::Report;
use crate::shed::{DEFAULT_PRIORITIES, PRIORITIES_MAX};
use crate::slas::PathPattern;
use crate::yaml::Node;
use crate::{AdaptiveShed, Classifier, FleetShed, ShedMode, ShedRules, WorkerShed};

/// The most classifiers: they are tried one after the other for each request.
const CLASSIFIERS_MAX: usize = 256;

/// The `shed:` of a file. Some of it can be checked only with all files at hand.
#[derive(Debug)]
pub(crate) struct ParsedShed {
    pub(crate) rules: ShedRules,
    /// The places of the classifiers.
    pub(crate) items: Vec<ItemPlace>,
    /// The place of `fleet`.
    pub(crate) fleet: Option<Mark>,
    /// True if all of it is as it is written: nothing was refused, or left out of an item.
    pub(crate) is_whole: bool,
}

/// The place of an item of `classify`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ItemPlace {
    pub(crate) item: Mark,
    pub(crate) plan: Option<Mark>,
}

/// Checks `shed:`, whose key is at `key`; errors have been reported.
pub(super) fn check_shed(key: Mark, shed: At<Shed>, report: &mut Report<'_>) -> At<ParsedShed> {
    let At {
        value: mut keys,
        mark,
    } = shed;
    let errors = report.errors_told();
    let mode = keys.mode.copied().unwrap_or_default();
    let priorities = priorities(keys.priorities.take().unwrap_or_default(), report);
    let (reads, writes) = defaults(&keys, mark, &priorities, report);
    let items = keys.classify.take().unwrap_or_default();
    let items = classifiers(&items, &priorities, report);
    let (classifiers, items) = items.into_iter().unzip();
    let place = keys.fleet.key();
    let rules = ShedRules {
        classifiers,
        fleet: keys.fleet.take().and_then(|at| fleet(&at, mode, report)),
        workers: keys.workers.take().map(|at| workers(&at, mode, report)),
        adaptive: keys.adaptive.take().map(|at| adaptive(&at, mode, report)),
        priorities,
        reads,
        writes,
        ..ShedRules::default()
    };
    if rules.fleet.is_none() && rules.workers.is_none() && rules.adaptive.is_none() {
        report.warn(
            key,
            "`shed` names no shedder, so nothing is shed",
            "add `workers: {}` and `adaptive: {}`",
        );
    }
    At {
        value: ParsedShed {
            rules,
            items,
            fleet: place,
            is_whole: report.errors_told() == errors,
        },
        mark: key,
    }
}

fn priorities(written: Vec<At<Box<str>>>, report: &mut Report<'_>) -> Vec<Box<str>> {
    let mut names: Vec<Box<str>> = Vec::new();
    for At { value, mark } in written {
        if names.contains(&value) {
            let message = format!("the priority '{value}' is there twice");
            report.error(mark, message, "leave one of them out");
        } else if names.len() >= PRIORITIES_MAX {
            let message = format!("there are at most {PRIORITIES_MAX} priorities");
            report.error(mark, message, "join some of them");
        } else {
            names.push(value);
        }
    }
    match names.is_empty() {
        true => DEFAULT_PRIORITIES.map(Into::into).into(),
        false => names,
    }
}

/// The class of that name.
#[expect(clippy::cast_possible_truncation, reason = "at most 8 priorities")]
fn class(name: &Field<Box<str>>, priorities: &[Box<str>], report: &mut Report<'_>) -> Option<u8> {
    let At { value, mark } = name.at()?;
    let found = priorities.iter().position(|name| name == value);
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
fn defaults(keys: &Shed, mark: Mark, priorities: &[Box<str>], report: &mut Report<'_>) -> (u8, u8) {
    if keys.default.is_set() {
        let class = class(&keys.default, priorities, report).unwrap_or(0);
        return (class, class);
    }
    let of = |name: &str| priorities.iter().position(|it| **it == *name);
    if let (Some(reads), Some(writes)) = (of("read"), of("write")) {
        return (reads as u8, writes as u8);
    }
    let mark = keys.priorities.key().unwrap_or(mark);
    report.error(
        mark,
        "set `default`, or define the priorities 'read' and 'write'",
        format!("write `default: {}`", priorities[0]),
    );
    (0, 0)
}

fn classifiers(
    items: &[Rc<Node>],
    priorities: &[Box<str>],
    report: &mut Report<'_>,
) -> Vec<(Classifier, ItemPlace)> {
    if let Some(item) = items.get(CLASSIFIERS_MAX) {
        let message = format!("`classify` has at most {CLASSIFIERS_MAX} items");
        report.error(item.mark, message, "use `*` and `**` in paths");
    }
    let mut classifiers = Vec::new();
    for item in items.iter().take(CLASSIFIERS_MAX) {
        let keys = read_item::<Classify>(item, report);
        classifiers.extend(keys.and_then(|keys| classifier(keys, priorities, report)));
    }
    classifiers
}

fn classifier(
    at: At<Classify>,
    priorities: &[Box<str>],
    report: &mut Report<'_>,
) -> Option<(Classifier, ItemPlace)> {
    let At {
        value: mut keys,
        mark,
    } = at;
    if !keys.class.is_set() {
        let help = format!("write `class: {}`", priorities[priorities.len() - 1]);
        report.error(mark, "there is no `class`", help);
    }
    let conditions = [
        keys.methods.is_set(),
        keys.path_pattern.is_set(),
        keys.header.is_set(),
        keys.plan.is_set(),
    ];
    let class = class(&keys.class, priorities, report);
    let methods = check_methods(keys.methods.take().unwrap_or_default(), report);
    let path = path(&keys.path_pattern, report);
    let header = header(&keys.header, &mut keys.value, report);
    if conditions == [false; 4] {
        report.error(
            mark,
            "this matches every request",
            "add `methods`, `pathPattern`, `header` or `plan`; for all other requests write `default:` beside `classify:`",
        );
    }
    let place = ItemPlace {
        item: mark,
        plan: keys.plan.mark(),
    };
    let classifier = Classifier {
        class: class?,
        methods,
        path,
        header,
        plan: keys.plan.take(),
    };
    Some((classifier, place))
}

fn path(path: &Field<Box<str>>, report: &mut Report<'_>) -> Option<PathPattern> {
    let At { value, mark } = path.at()?;
    let help = "a path such as `/product/*`: `*` is one segment, `**` the rest";
    let parsed = PathPattern::parse(value);
    parsed
        .map_err(|why| report.error(mark, why.to_string(), help))
        .ok()
}

fn header(
    name: &Field<Box<str>>,
    value: &mut Field<Box<str>>,
    report: &mut Report<'_>,
) -> Option<(Box<str>, Option<Box<str>>)> {
    let value = value.take_at();
    let Some(At { value: name, mark }) = name.at() else {
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
    let value = value.map(|at| at.value);
    Some((name.to_ascii_lowercase().into(), value))
}

fn fleet(at: &At<Fleet>, outer: ShedMode, report: &mut Report<'_>) -> Option<FleetShed> {
    let At { value: keys, mark } = at;
    if !keys.capacity.is_set() {
        report.error(
            *mark,
            "`fleet` needs a `capacity`",
            "write `capacity: 1000`: the requests that all nodes together can work on at a time",
        );
    }
    if let Some(At { value: 100, mark }) = keys.reserve.at() {
        report.error(
            mark,
            "a `reserve` of 100% leaves nothing to requests that are not critical",
            "write `reserve: 20%`",
        );
    }
    Some(FleetShed {
        capacity: keys.capacity.copied()?,
        reserve_percent: keys.reserve.copied().unwrap_or(20),
        mode: keys.mode.copied().unwrap_or(outer),
    })
}

fn workers(at: &At<Workers>, outer: ShedMode, report: &mut Report<'_>) -> WorkerShed {
    let At { value: keys, mark } = at;
    let good = keys.good.copied().unwrap_or(70);
    let bad = keys.bad.copied().unwrap_or(80);
    if good >= bad {
        let at_bad = keys.bad.at().map(|at| at.mark);
        report.error(
            at_bad.or(keys.good.key()).unwrap_or(*mark),
            format!("utilisation cannot be good up to {good}% and bad from {bad}%"),
            "write `good: 70%` and `bad: 80%`",
        );
    }
    if good == 0 {
        let mark = keys.good.key().unwrap_or(*mark);
        report.error(mark, "`good` is at least 1%", "write `good: 70%`");
    }
    WorkerShed {
        good_percent: good,
        bad_percent: bad,
        mode: keys.mode.copied().unwrap_or(outer),
    }
}

fn adaptive(at: &At<Adaptive>, outer: ShedMode, report: &mut Report<'_>) -> AdaptiveShed {
    let At { value: keys, mark } = at;
    let min = keys.min.copied().unwrap_or(1);
    let max = keys.max.copied().unwrap_or(1_000);
    if min > max {
        let at_max = keys.max.at().map(|at| at.mark);
        report.error(
            at_max.or(keys.min.key()).unwrap_or(*mark),
            format!("the smallest limit, {min}, is larger than the largest, {max}"),
            "write `min: 1` and `max: 1000`",
        );
    }
    AdaptiveShed {
        min,
        max,
        mode: keys.mode.copied().unwrap_or(outer),
    }
}
