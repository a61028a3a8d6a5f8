//! The readers of values: each reports what is wrong with one, and what to write.

use std::rc::Rc;

use ratekeeper_core::duration::parse_duration;
use ratekeeper_core::percentage::{NotAPercentage, parse_percentage};
use ratekeeper_core::{Algorithm, MAX_COUNT, Micros, Timestamp};

use crate::Enforce;
use crate::choice::{Choice, choose};
use crate::draft::no_duration;
use crate::format::fields::{check_leaf, number};
use crate::mark::At;
use crate::policy::NOT_A_RATE;
use crate::report::Report;
use crate::time::{self, NotATime};
use crate::usage::{JsonPointer, UsageEstimate, WEIGHT_MAX, WEIGHT_ONE};
use crate::yaml::{Kind, Node, Resolved, Scalar};

/// The largest capacity and limit of a shedder.
const REQUESTS_MAX: u64 = 1_000_000;

/// A value as its literal text: numbers and booleans as they are written. Decimals and huge numbers, which
/// envoyproxy/ratelimit does not accept as text, are refused.
pub(super) fn text(key: &str, node: &Node, report: &mut Report<'_>) -> Option<Box<str>> {
    let Kind::Scalar(scalar) = &node.kind else {
        let message = format!("`{key}` must be text, not {}", node.kind_name());
        report.error(node.mark, message, format!("write `{key}: some text`"));
        return None;
    };
    check_leaf(key, node, scalar, report).then(|| scalar.text.clone())
}

pub(super) fn boolean(key: &str, node: &Node, report: &mut Report<'_>) -> Option<bool> {
    if let Kind::Scalar(Scalar {
        resolved: Resolved::Bool(value),
        ..
    }) = node.kind
    {
        return Some(value);
    }
    let message = format!("`{key}` must be true or false, not {}", node.kind_name());
    let quoted = matches!(&node.kind, Kind::Scalar(scalar) if scalar.text.eq_ignore_ascii_case("true")
        || scalar.text.eq_ignore_ascii_case("false"));
    let help = if quoted {
        "write it without quotes"
    } else {
        "write true or false"
    };
    report.error(node.mark, message, help);
    None
}

/// A whole number of 0 to `most`.
pub(super) fn count(key: &str, node: &Node, most: u64, report: &mut Report<'_>) -> Option<u64> {
    let range = format!("a whole number from 0 to {most}");
    let (message, help) = match &node.kind {
        Kind::Scalar(Scalar {
            resolved: Resolved::Int(int),
            text,
            ..
        }) => match u64::try_from(*int).ok().filter(|&count| count <= most) {
            Some(value) => {
                warn_of_octal(key, value, text, node, report);
                return Some(value);
            }
            None => (
                format!("`{key}` is {range}, not {text}"),
                too_large_help(key, *int),
            ),
        },
        Kind::Scalar(scalar) if number::not_octal(scalar).is_some_and(|it| it <= most) => {
            no_octal(key, scalar)
        }
        Kind::Scalar(Scalar {
            resolved: Resolved::BigInt(_) | Resolved::Float(_),
            text,
            ..
        }) if text.bytes().all(|byte| byte.is_ascii_digit()) => (
            format!("`{key}` is {range}, not {text}"),
            Some(format!("write at most `{key}: {most}`")),
        ),
        Kind::Scalar(scalar) if let Ok(meant) = scalar.text.parse::<u64>() => (
            format!("`{key}` must be a number, not text"),
            // Without quotes, a zero before it would make it another number.
            Some(match scalar.text.starts_with('0') {
                true => format!("write `{key}: {meant}`, without quotes"),
                false => "write it without quotes".to_owned(),
            }),
        ),
        _ => (
            format!("`{key}` must be {range}, not {}", node.kind_name()),
            number_help(key, node, most),
        ),
    };
    report.error(node.mark, message, help);
    None
}

/// Warns of a number that YAML reads as another one than it seems to be.
fn warn_of_octal(key: &str, value: u64, text: &str, node: &Node, report: &mut Report<'_>) {
    if let Some(meant) = number::zeros_before(text).filter(|meant| *meant != value) {
        let message =
            format!("`{key}` is {value}: YAML takes a number that begins with 0 for an octal one");
        let help = format!("write `{key}: {meant}` or `{key}: {value}`");
        report.warn(node.mark, message, help);
    }
}

/// The message and the help for a decimal number that begins with 0.
fn no_octal(key: &str, scalar: &Scalar) -> (String, Option<String>) {
    let text = &scalar.text;
    let message = format!(
        "`{key}` cannot be {text}: YAML takes a number that begins with 0 for an octal one, which has no 8 and no 9"
    );
    let help = number::not_octal(scalar).map(|meant| format!("write `{key}: {meant}`"));
    (message, help)
}

fn too_large_help(key: &str, int: i64) -> Option<String> {
    match key {
        _ if int <= 0 => None,
        "requests_per_unit" => Some(format!(
            "write `limit:` instead: it goes up to {MAX_COUNT} (2^53 - 1)"
        )),
        _ => None,
    }
}

/// Suggests the number that a text stands for.
fn number_help(key: &str, node: &Node, most: u64) -> Option<String> {
    let Kind::Scalar(scalar) = &node.kind else {
        return None;
    };
    let is_count = matches!(key, "limit" | "requests_per_unit");
    if let Some((window, limit)) = number::rate(&scalar.text).filter(|_| is_count) {
        return Some(format!("write `window: {window}` and `limit: {limit}`"));
    }
    let meant = number::meant(&scalar.text).into_iter();
    let meant = meant.filter(|number| *number <= most);
    let meant: Vec<_> = meant.map(|number| format!("`{key}: {number}`")).collect();
    (!meant.is_empty()).then(|| format!("write {}", meant.join(" or ")))
}

/// A number of requests, at least 1.
pub(super) fn requests(key: &str, node: &Node, report: &mut Report<'_>) -> Option<u32> {
    let count = count(key, node, REQUESTS_MAX, report)?;
    if count == 0 {
        report.error(node.mark, format!("`{key}` is at least 1"), None);
        return None;
    }
    u32::try_from(count).ok()
}

/// A span of time: `10s`, `250ms`, `1h30m`.
pub(super) fn duration(key: &str, node: &Node, report: &mut Report<'_>) -> Option<Micros> {
    let (message, help) = match &node.kind {
        Kind::Scalar(scalar) => match parse_duration(&scalar.text) {
            Ok(value) => return Some(value),
            Err(why) => no_duration(key, &why),
        },
        _ => no_duration(key, &"it must be a duration"),
    };
    let seconds = match &node.kind {
        // As it looks, also where a zero before it or quotes make it something else.
        Kind::Scalar(Scalar { text, resolved, .. }) => match (text.parse::<u64>(), resolved) {
            (Ok(seconds), _) => Some(seconds),
            (Err(_), Resolved::Int(seconds)) => u64::try_from(*seconds).ok(),
            _ => None,
        },
        _ => None,
    };
    let help = match seconds {
        Some(seconds) if seconds > 0 => format!("say the unit: `{key}: {seconds}s`"),
        _ => help,
    };
    report.error(node.mark, message, help);
    None
}

/// The shortest lease that is worth a call, and the longest for which other nodes may lack the hits.
const LEASE_TIMES: (Micros, Micros) = (Micros::from_millis(5), Micros::from_secs(10));

pub(super) fn lease_time(key: &str, node: &Node, report: &mut Report<'_>) -> Option<Micros> {
    let value = duration(key, node, report)?;
    let (least, most) = LEASE_TIMES;
    if value < least || value > most {
        let message = "`lease_time` is out of range: it is 5ms to 10s";
        let help = "write `lease_time: 100ms`: other nodes cannot admit the hits that a node holds for so long";
        report.error(node.mark, message, help);
        return None;
    }
    Some(value)
}

/// A period: whole seconds, or a duration with its unit.
pub(super) fn period(key: &str, node: &Node, report: &mut Report<'_>) -> Option<Micros> {
    const NO_TIME: &str = "`period` is longer than 0";
    let help = || Some("write `period: 10`, or `period: 500ms`".to_owned());
    let (message, help) = match &node.kind {
        Kind::Scalar(Scalar {
            resolved: Resolved::Int(seconds),
            text,
            ..
        }) => match u64::try_from(*seconds).ok().filter(|seconds| *seconds > 0) {
            Some(seconds) => {
                warn_of_octal(key, seconds, text, node, report);
                return Some(Micros::from_secs(seconds));
            }
            None => (NO_TIME.to_owned(), help()),
        },
        Kind::Scalar(scalar) if number::not_octal(scalar).is_some() => no_octal(key, scalar),
        Kind::Scalar(scalar) => match parse_duration(&scalar.text) {
            Ok(period) if !period.is_zero() => return Some(period),
            Ok(_) => (NO_TIME.to_owned(), help()),
            Err(why) => (
                no_duration(key, &why).0,
                match scalar.text.parse::<i64>() {
                    Ok(meant) if meant > 0 => Some(format!(
                        "write `{key}: {meant}`, without quotes, or `{key}: {meant}s`"
                    )),
                    _ => help(),
                },
            ),
        },
        _ => (no_duration(key, &"it must be a duration").0, help()),
    };
    report.error(node.mark, message, help);
    None
}

pub(super) fn moment(key: &str, node: &Node, report: &mut Report<'_>) -> Option<Timestamp> {
    let written = text(key, node, report)?;
    let (message, help) = match time::parse(&written) {
        Ok(value) => return Some(value),
        Err(NotATime::Unreadable) => (
            format!("`{key}` is neither a date nor a date and time of RFC 3339"),
            format!(
                "write `{key}: 2027-01-31T00:00:00Z`, with `Z` or the offset from UTC, or `{key}: 2027-01-31`, which is \
                 its start in UTC"
            ),
        ),
        Err(NotATime::TooLate) => (
            format!("`{key}` is too late: times end in June 2255"),
            "leave it out if it never comes".to_owned(),
        ),
    };
    report.error(node.mark, message, help);
    None
}

/// The millionths of a decimal number with at most six decimals, if it is at most [`WEIGHT_MAX`] either way.
fn millionths(text: &str) -> Option<i64> {
    let (sign, digits) = match text.strip_prefix('-') {
        Some(digits) => (-1, digits),
        None => (1, text),
    };
    let (whole, decimals) = digits.split_once('.').unwrap_or((digits, ""));
    let is_digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if whole.is_empty() || decimals.len() > 6 || !is_digits(whole) || !is_digits(decimals) {
        return None;
    }
    let decimals: i64 = format!("{decimals:0<6}").parse().ok()?;
    let whole: i64 = whole.parse().ok()?;
    let value = whole.checked_mul(WEIGHT_ONE)?.checked_add(decimals)?;
    (value <= WEIGHT_MAX).then_some(sign * value)
}

/// The weight that a node is.
fn weight_of(node: &Node) -> Option<i64> {
    match &node.kind {
        Kind::Scalar(scalar) => millionths(&scalar.text),
        _ => None,
    }
}

pub(super) fn weight(key: &str, node: &Node, report: &mut Report<'_>) -> Option<i64> {
    let weight = weight_of(node).filter(|weight| *weight >= 0);
    if weight.is_none() {
        let message = format!("`{key}` is a number from 0 to 1000000 with at most six decimals");
        report.error(
            node.mark,
            message,
            format!("write `{key}: 1` or `{key}: 0.25`"),
        );
    }
    weight
}

/// A pointer of weight 1, or pointers with their weights.
pub(super) fn places(
    key: &str,
    node: &Node,
    report: &mut Report<'_>,
) -> Option<Vec<(At<JsonPointer>, i64)>> {
    let Some(pairs) = node.as_map() else {
        let pointer = text(key, node, report)?;
        return Some(vec![(
            node.at(pointer_of(&pointer, node, report)?),
            WEIGHT_ONE,
        )]);
    };
    let mut places = Vec::new();
    for pair in pairs {
        let written = text(key, &pair.key, report)?;
        let pointer = pointer_of(&written, &pair.key, report)?;
        let Some(weight) = weight_of(&pair.value) else {
            let message = "the hits that one counts for are a number from -1000000 to 1000000 with at most six decimals";
            report.error(pair.value.mark, message, format!("write `{written}: 1`"));
            return None;
        };
        places.push((pair.key.at(pointer), weight));
    }
    Some(places)
}

fn pointer_of(written: &str, node: &Node, report: &mut Report<'_>) -> Option<JsonPointer> {
    match JsonPointer::parse(written) {
        Ok(pointer) => Some(pointer),
        Err(error) => {
            let help = "write the keys down to the number: `/usage/total_tokens`";
            report.error(node.mark, error.to_string(), help);
            None
        }
    }
}

/// `bytes/4`, or a number of hits.
pub(super) fn estimate(key: &str, node: &Node, report: &mut Report<'_>) -> Option<UsageEstimate> {
    let written = text(key, node, report)?;
    let bytes = written.strip_prefix("bytes/").map(str::parse);
    let hits = || written.parse().ok().filter(|hits| *hits <= MAX_COUNT);
    let estimate = match bytes {
        Some(bytes) => bytes.ok().map(UsageEstimate::Bytes),
        None => hits().map(UsageEstimate::Hits),
    };
    if estimate.is_none() {
        let message = format!("`{key}` is `bytes/` and a number, or a number of hits");
        report.error(
            node.mark,
            message,
            format!("write `{key}: bytes/4` or `{key}: 500`"),
        );
    }
    estimate
}

pub(super) fn store(key: &str, node: &Node, report: &mut Report<'_>) -> Option<Box<str>> {
    let value = text(key, node, report)?;
    if value.is_empty() {
        let help = "write a store's name, or leave the key out";
        report.error(node.mark, "`store` is empty", help);
        return None;
    }
    // A single file cannot know which stores exist.
    report.stores.push(node.at(value.clone()));
    Some(value)
}

/// The items of a list.
pub(super) fn list<'t>(
    key: &str,
    node: &'t Node,
    report: &mut Report<'_>,
) -> Option<&'t [Rc<Node>]> {
    if node.as_list().is_none() {
        let message = format!("`{key}` must be a list, not {}", node.kind_name());
        report.error(node.mark, message, "start each item with `- `");
    }
    node.as_list()
}

/// A list of texts with their positions; items that are not text are reported and left out.
pub(super) fn texts(key: &str, node: &Node, report: &mut Report<'_>) -> Option<Vec<At<Box<str>>>> {
    let mut texts = Vec::new();
    for item in list(key, node, report)? {
        match &item.kind {
            Kind::Scalar(scalar) if !item.is_null() && !scalar.text.is_empty() => {
                texts.push(item.at(scalar.text.clone()));
            }
            _ => {
                let kind = item.kind_name();
                let message = format!("`{key}` is a list of names, and {kind} is none");
                report.error(item.mark, message, None);
            }
        }
    }
    Some(texts)
}

pub(super) fn entries(
    key: &str,
    node: &Node,
    report: &mut Report<'_>,
) -> Option<Vec<At<Box<str>>>> {
    match node.as_list() {
        Some(_) => texts(key, node, report),
        None => Some(vec![node.at(text(key, node, report)?)]),
    }
}

pub(super) fn algorithm(key: &str, node: &Node, report: &mut Report<'_>) -> Option<Algorithm> {
    let algorithm: Algorithm = choice(key, node, report)?;
    if algorithm.holds_permits() {
        let (message, help) = NOT_A_RATE;
        report.error(node.mark, message, help);
        return None;
    }
    Some(algorithm)
}

/// One of a fixed set of words.
pub(super) fn choice<T: Choice>(key: &str, node: &Node, report: &mut Report<'_>) -> Option<T> {
    let chosen = choose(key, written(node));
    chosen
        .map_err(|(message, help)| report.error(node.mark, message, help))
        .ok()
}

/// The text of a value, else its kind.
pub(super) fn written(node: &Node) -> &str {
    match &node.kind {
        Kind::Scalar(scalar) => &scalar.text,
        _ => node.kind_name(),
    }
}

/// A share of 0% to 100%.
pub(super) fn share(_: &str, node: &Node, report: &mut Report<'_>) -> Option<Enforce> {
    let Kind::Scalar(scalar) = &node.kind else {
        let message = format!("`enforce` is a share, not {}", node.kind_name());
        report.error(node.mark, message, "write `enforce: 10%`");
        return None;
    };
    let text = &scalar.text;
    let help = match parse_percentage(text) {
        Ok(hundredths) => return Enforce::from_hundredths(hundredths),
        Err(NotAPercentage::NoSign(_)) => format!("write `enforce: {text}%`"),
        Err(NotAPercentage::NoNumber) => "write `enforce: 10%`".to_owned(),
    };
    let message =
        format!("`enforce` cannot be '{text}': it is 0% to 100%, with up to two decimals");
    report.error(node.mark, message, help);
    None
}

/// A whole percentage from 0% to 100%.
pub(super) fn percent(key: &str, node: &Node, report: &mut Report<'_>) -> Option<u8> {
    let text = written(node);
    let whole = |hundredths: u16| {
        u8::try_from(hundredths / 100)
            .ok()
            .filter(|_| hundredths.is_multiple_of(100))
    };
    let read = parse_percentage(text);
    if let Some(percent) = read.ok().and_then(whole) {
        return Some(percent);
    }
    let message = format!("`{key}` cannot be '{text}': it is a whole percentage from 0% to 100%");
    let help = match read {
        Err(NotAPercentage::NoSign(hundredths)) if hundredths.is_multiple_of(100) => {
            format!("write `{key}: {}%`", hundredths / 100)
        }
        _ => format!("write `{key}: 20%`"),
    };
    report.error(node.mark, message, help);
    None
}
