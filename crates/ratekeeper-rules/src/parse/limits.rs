//! One limit: a quota, a window and an algorithm.

use ratekeeper_core::{Algorithm, Limit, LimitError, LimitSpec, Micros};

use super::context::Context;
use super::fields::{At, Fields};
use super::policy::Policy;
use super::window::{Window, parse_window};
use crate::report::Report;
use crate::yaml::{Mark, Node};
use crate::{Calendar, RuleLimit, Unit};

/// A limit from a file, checked.
#[derive(Debug)]
pub(crate) struct ParsedLimit {
    pub(crate) mark: Mark,
    pub(crate) limit: RuleLimit,
    pub(crate) calendar: Option<Calendar>,
    pub(crate) unit: Option<Unit>,
    pub(crate) window_text: Box<str>,
    pub(crate) name: Option<Box<str>>,
    pub(crate) replaces: Vec<At<Box<str>>>,
    pub(crate) id: Option<At<Box<str>>>,
    pub(crate) policy: Policy,
    pub(crate) retry_after: Option<Micros>,
}

impl ParsedLimit {
    /// A rule without a limit.
    pub(crate) fn unlimited(mark: Mark) -> Self {
        Self {
            mark,
            limit: RuleLimit::Unlimited,
            calendar: None,
            unit: None,
            window_text: "".into(),
            name: None,
            replaces: Vec::new(),
            id: None,
            policy: Policy::default(),
            retry_after: None,
        }
    }
}

/// The defaults that a limit takes from its surroundings.
#[derive(Clone, Copy)]
pub(crate) struct LimitDefaults<'a> {
    /// The policy of the descriptor and the domain.
    pub(crate) policy: &'a Policy,
    /// The algorithm, if neither names one.
    pub(crate) algorithm: Algorithm,
}

/// Reads a limit of `rate_limit:` or of a plan. [`None`] if it is wrong, which has been reported.
pub(crate) fn parse_limit(
    node: &Node,
    context: Context,
    around: LimitDefaults<'_>,
    report: &mut Report<'_>,
) -> Option<ParsedLimit> {
    let fields = Fields::new(node, context, report)?;
    limit_of(&fields, around, report)
}

/// Reads the limit of a mapping whose keys have been checked.
pub(crate) fn limit_of(
    fields: &Fields<'_>,
    around: LimitDefaults<'_>,
    report: &mut Report<'_>,
) -> Option<ParsedLimit> {
    let name: Option<Box<str>> = fields
        .text("name", report)
        .filter(|at| !at.value.is_empty())
        .map(|at| at.value.into());
    let own = Policy::parse(fields, report);
    let own_algorithm = own.algorithm;
    let unlimited = ParsedLimit {
        replaces: parse_replaces(fields, name.as_deref(), report),
        name,
        id: parse_id(fields, report),
        policy: own.within(around.policy),
        ..ParsedLimit::unlimited(fields.mark)
    };
    if fields
        .boolean("unlimited", report)
        .is_some_and(|at| at.value)
    {
        check_unlimited(fields, report);
        return Some(unlimited);
    }
    let window = parse_window(fields, report);
    let quota = parse_quota(fields, report);
    let (window, quota) = (window?, quota?);
    let default = match window {
        Window::Calendar(_) => Algorithm::FixedWindow,
        _ => unlimited.policy.algorithm.unwrap_or(around.algorithm),
    };
    let algorithm = own_algorithm.unwrap_or(default);
    let length = (window.length(), matches!(window, Window::Calendar(_)));
    let limit = checked_limit(fields, algorithm, quota, length, report)?;
    Some(ParsedLimit {
        limit: RuleLimit::Limited(limit),
        unit: window.unit(),
        window_text: window.text().into(),
        calendar: window.into_calendar(),
        ..unlimited
    })
}

/// Builds the limit, which fails if the counters' arithmetic could overflow.
///
/// `window` is its length, and true if it follows a calendar.
pub(super) fn checked_limit(
    fields: &Fields<'_>,
    algorithm: Algorithm,
    quota: u64,
    window: (Micros, bool),
    report: &mut Report<'_>,
) -> Option<Limit> {
    let burst = fields.hits("burst", report);
    let sub_windows = fields.count("sub_windows", u64::from(u32::MAX), report);
    let strict = fields.boolean("strict", report);
    let unread = (fields.has("burst") && burst.is_none())
        || (fields.has("sub_windows") && sub_windows.is_none())
        || (fields.has("strict") && strict.is_none());
    if unread {
        return None;
    }
    let spec = LimitSpec {
        calendar: window.1,
        burst: burst.map(|at| at.value),
        // `count` has just checked the range.
        sub_windows: sub_windows.and_then(|at| u32::try_from(at.value).ok()),
        strict: strict.is_some_and(|at| at.value),
        ..LimitSpec::new(algorithm, quota, window.0)
    };
    let error = match Limit::try_new(spec) {
        Ok(limit) => return Some(limit),
        Err(error) => error,
    };
    let mark = culprits(error)
        .iter()
        .find_map(|key| fields.get(key))
        .map_or(fields.mark, |node| node.mark);
    report.error(mark, error.to_string(), limit_help(error));
    None
}

/// The keys that an error can be about; the caret points at the first one that the file has.
const fn culprits(error: LimitError) -> &'static [&'static str] {
    match error {
        LimitError::EmptyWindow => &["window"],
        LimitError::BurstTooLarge | LimitError::ZeroBurst | LimitError::NoBurst(_) => &["burst"],
        LimitError::NoSubWindows(_) | LimitError::SubWindowsOutOfRange => &["sub_windows"],
        LimitError::SubWindowsTooShort { .. } => &["sub_windows", "window", "period"],
        LimitError::NoStrict(_) | LimitError::StrictWithSubWindows => &["strict"],
        LimitError::WindowTooShort => &["window", "period"],
        LimitError::NoCalendar(_) => &["algorithm", "calendar"],
        _ => &["limit", "requests_per_unit", "threshold", "burst"],
    }
}

fn limit_help(error: LimitError) -> Option<String> {
    let help = match error {
        LimitError::NoBurst(_) => "add `algorithm: token_bucket`, or leave `burst` out",
        LimitError::NoSubWindows(_) => {
            "add `algorithm: sliding_window`, or leave `sub_windows` out"
        }
        LimitError::NoStrict(_) => "add `algorithm: sliding_window`, or leave `strict` out",
        LimitError::StrictWithSubWindows => "leave `sub_windows` out, or `strict`",
        LimitError::NoCalendar(_) => "write `algorithm: fixed_window`, or leave it out",
        LimitError::EmptyWindow => "write `window: 10s`",
        _ => return None,
    };
    Some(help.to_owned())
}

fn check_unlimited(fields: &Fields<'_>, report: &mut Report<'_>) {
    if let Some(unit) = fields.text("unit", report) {
        if Unit::from_name(unit.value).is_some() {
            let message = "should not specify rate limit unit when unlimited";
            report.error(unit.mark, message, "leave out `unit:`, or `unlimited:`");
        } else {
            let message = "`unit` means nothing beside `unlimited` and is ignored";
            report.warn(unit.mark, message, None);
        }
    }
    if let Some(count) = fields.count("requests_per_unit", u64::from(u32::MAX), report) {
        let message = "`requests_per_unit` means nothing beside `unlimited` and is ignored";
        report.warn(count.mark, message, None);
    }
    for key in [
        "limit",
        "window",
        "calendar",
        "burst",
        "sub_windows",
        "strict",
        "algorithm",
    ] {
        if let Some(mark) = fields.key_mark(key) {
            report.error(
                mark,
                format!("`{key}` contradicts `unlimited`"),
                "leave one of them out",
            );
        }
    }
}

fn parse_quota(fields: &Fields<'_>, report: &mut Report<'_>) -> Option<u64> {
    let per_unit = fields.count("requests_per_unit", u64::from(u32::MAX), report);
    let limit = fields.hits("limit", report);
    let help = "write `limit: 100`; 0 blocks everything";
    match (
        fields.key_mark("requests_per_unit"),
        fields.key_mark("limit"),
    ) {
        (Some(_), Some(mark)) => {
            let message = "`limit` and `requests_per_unit` say the same thing";
            report.error(mark, message, "leave one of them out");
            None
        }
        (None, Some(_)) if !fields.has("limit") => {
            report.error(fields.mark, "`limit` is empty", help);
            None
        }
        (None, Some(_)) => limit.map(|at| at.value),
        (Some(_), None) if fields.has("requests_per_unit") => per_unit.map(|at| at.value),
        _ if fields.has("window") || fields.has("calendar") => {
            report.error(fields.mark, "there is no `limit`", help);
            None
        }
        _ => {
            let message = "without `requests_per_unit` this blocks everything";
            let help = "if that is meant, write `requests_per_unit: 0`";
            report.warn(fields.mark, message, help);
            Some(0)
        }
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
