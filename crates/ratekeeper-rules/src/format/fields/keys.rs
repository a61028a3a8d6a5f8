//! Checks of the keys of one mapping.

use super::number::{self, Cut};
use super::{Fields, not_a_map};
use crate::format::mapping::{Mapping as _, Shape};
use crate::format::test_file::{Expect, Step, Test, TestFile, View};
use crate::format::{Concurrency, Descriptor, File, PlanLimit, RateLimit, ServiceLevel, Tier};
use crate::nearest::nearest;
use crate::report::Report;
use crate::yaml::{Kind, Node, Pair, Resolved, Scalar};

/// The keys of envoyproxy/ratelimit. It has one list for all levels and ignores a key where it has no meaning: so they
/// are accepted everywhere, with a warning, and ours only where they act.
const ENVOY_KEYS: [&str; 16] = [
    "domain",
    "key",
    "value",
    "descriptors",
    "rate_limit",
    "unit",
    "requests_per_unit",
    "unlimited",
    "shadow_mode",
    "quota_mode",
    "name",
    "replaces",
    "detailed_metric",
    "value_to_metric",
    "share_threshold",
    "metadata",
];

/// Suggests the mapping for a rate written the way people say it: `10/s`, `100 per minute`.
pub(super) fn rate_help(node: &Node, shape: &Shape) -> Option<String> {
    if !shape.is::<RateLimit>() && !shape.is::<PlanLimit>() {
        return None;
    }
    let example = "write `{ window: 1s, limit: 10 }`";
    let Kind::Scalar(scalar) = &node.kind else {
        return Some(example.to_owned());
    };
    let written = number::rate(&scalar.text);
    let written =
        written.map(|(window, limit)| format!("write `{{ window: {window}, limit: {limit} }}`"));
    Some(written.unwrap_or_else(|| example.to_owned()))
}

pub(super) fn first_keys(shape: &Shape) -> Option<String> {
    let keys: Vec<_> = shape.first.iter().map(|key| format!("`{key}:`")).collect();
    (!keys.is_empty()).then(|| format!("write keys such as {}", keys.join(", ")))
}

/// The prefix of keys for templates: values at the top of a file that aliases refer to, and that
/// have no meaning there.
const TEMPLATE: &str = "x-";

/// The key, if it is text.
pub(super) fn key_text(pair: &Pair) -> Option<&str> {
    match &pair.key.kind {
        Kind::Scalar(Scalar {
            text,
            resolved: Resolved::Text,
            ..
        }) => Some(text),
        _ => None,
    }
}

/// Checks the key of `pairs[at]`.
pub(super) fn check_pair(pairs: &[Pair], at: usize, shape: &Shape, report: &mut Report<'_>) {
    match Cut::of(pairs, at) {
        None => check_key(&pairs[at], shape, report),
        // Told with the first group.
        Some(Cut::Later) => {}
        Some(Cut::First(pair, digits)) => {
            let key = key_text(pair).unwrap_or_default();
            report.error(
                pair.value.mark,
                format!(
                    "the comma ends the value of `{key}` here: within braces it separates keys"
                ),
                format!("write `{key}: {digits}`"),
            );
        }
    }
}

fn check_key(pair: &Pair, shape: &Shape, report: &mut Report<'_>) {
    if pair.stale {
        return;
    }
    let mark = pair.key.mark;
    let Some(key) = key_text(pair) else {
        let (what, help) = match &pair.key.kind {
            Kind::Scalar(scalar) => (
                scalar.text.to_string(),
                format!("quote it: \"{}\"", scalar.text),
            ),
            _ => (pair.key.kind_name().to_owned(), "write a name".to_owned()),
        };
        report.error(mark, format!("key is not of type string: {what}"), help);
        return;
    };
    if (shape.has)(key) || shape.is::<File>() && key.starts_with(TEMPLATE) {
        return;
    }
    if shape.is_envoy && ENVOY_KEYS.contains(&key) {
        if !shape.is_ignored() {
            let message = format!("`{key}` means nothing {} and is ignored", shape.place);
            report.warn(mark, message, None);
        }
        if key != "metadata" {
            check_ignored(key, &pair.value, report);
        }
        return;
    }
    let envoy = ENVOY_KEYS.iter().filter(|_| shape.is_envoy);
    let known = shape.keys().into_iter();
    let help =
        nearest(key, known.chain(envoy.copied())).map(|name| format!("did you mean `{name}`?"));
    let help = tests_help(key, shape).or(help);
    let help = help
        .or_else(|| elsewhere(key, shape))
        .or_else(|| first_keys(shape));
    // A value whose key is wrong may be a secret.
    let message = if pair.value.is_null() {
        format!("unknown key without a value {}", shape.place)
    } else {
        format!("unknown key '{key}' {}", shape.place)
    };
    report.error(mark, message, help);
}

/// Tells whoever loads a file of tests as rules what it is.
fn tests_help(key: &str, shape: &Shape) -> Option<String> {
    let is_it = shape.is::<File>() && key == "tests";
    is_it.then(|| "a file of tests has no rules: run `ratekeeper rules test` with it".to_owned())
}

/// Names the mapping in which one of our keys would have a meaning.
fn elsewhere(key: &str, shape: &Shape) -> Option<String> {
    let of_tests = [Test::SHAPE, Step::SHAPE, View::SHAPE, Expect::SHAPE];
    let is_of_tests = shape.is::<TestFile>() || of_tests.iter().any(|it| it.place == shape.place);
    if is_of_tests {
        let right = of_tests.into_iter().find(|shape| (shape.has)(key))?;
        return Some(format!("`{key}` belongs {}", right.place));
    }
    let shapes = [
        File::SHAPE,
        Descriptor::SHAPE,
        RateLimit::SHAPE,
        Concurrency::SHAPE,
        ServiceLevel::SHAPE,
        Tier::SHAPE,
    ];
    let right = shapes.into_iter().find(|shape| (shape.has)(key))?;
    Some(format!("`{key}` belongs {}", right.place))
}

/// Applies the checks that envoyproxy/ratelimit makes even of values that it ignores.
fn check_ignored(key: &str, value: &Node, report: &mut Report<'_>) {
    match &value.kind {
        Kind::Scalar(scalar) => {
            check_leaf(key, value, scalar, report);
        }
        Kind::Map(_) => {
            Fields::new(value, &Shape::IGNORED, report);
        }
        Kind::List(items) => {
            for item in items {
                if item.as_map().is_some() {
                    Fields::new(item, &Shape::IGNORED, report);
                } else {
                    not_a_map(item, report);
                }
            }
        }
    }
}

/// Refuses decimals and huge numbers wherever envoyproxy/ratelimit reads a value.
pub(crate) fn check_leaf(key: &str, node: &Node, scalar: &Scalar, report: &mut Report<'_>) -> bool {
    match scalar.resolved {
        Resolved::Float(_) | Resolved::BigInt(_) => {
            // The message names the kind only: the text may be a secret.
            let message = format!("`{key}` cannot be {}", scalar.resolved.kind());
            report.error(
                node.mark,
                message,
                format!("for the text, quote it: `{key}: \"{}\"`", scalar.text),
            );
            false
        }
        _ => true,
    }
}
