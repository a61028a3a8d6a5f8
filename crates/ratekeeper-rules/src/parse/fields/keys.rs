//! Checks of the keys of one mapping.

use super::number::{self, Cut};
use super::{Fields, not_a_map};
use crate::parse::context::{Context, ENVOY_KEYS};
use crate::parse::nearest::nearest;
use crate::report::Report;
use crate::yaml::{Kind, Node, Pair, Resolved, Scalar};

/// Suggests the mapping for a rate written the way people say it: `10/s`, `100 per minute`.
pub(super) fn rate_help(node: &Node, context: Context) -> Option<String> {
    if !matches!(context, Context::RateLimit | Context::PlanLimit) {
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

pub(super) fn first_keys(context: Context) -> Option<String> {
    let keys = context.first_keys();
    let keys: Vec<_> = keys.map(|key| format!("`{key}:`")).collect();
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
pub(super) fn check_pair(pairs: &[Pair], at: usize, context: Context, report: &mut Report<'_>) {
    match Cut::of(pairs, at) {
        None => check_key(&pairs[at], context, report),
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

fn check_key(pair: &Pair, context: Context, report: &mut Report<'_>) {
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
    if context.has(key) || context == Context::Root && key.starts_with(TEMPLATE) {
        return;
    }
    if context.is_known_to_envoy() && ENVOY_KEYS.contains(&key) {
        if context != Context::Ignored {
            let message = format!("`{key}` means nothing {} and is ignored", context.name());
            report.warn(mark, message, None);
        }
        if key != "metadata" {
            check_ignored(key, &pair.value, report);
        }
        return;
    }
    let envoy = ENVOY_KEYS.iter().filter(|_| context.is_known_to_envoy());
    let known = context.keys().iter().map(String::as_str);
    let help =
        nearest(key, known.chain(envoy.copied())).map(|name| format!("did you mean `{name}`?"));
    let help = help
        .or_else(|| elsewhere(key))
        .or_else(|| first_keys(context));
    // A value whose key is wrong may be a secret.
    let message = if pair.value.is_null() {
        format!("unknown key without a value {}", context.name())
    } else {
        format!("unknown key '{key}' {}", context.name())
    };
    report.error(mark, message, help);
}

/// Names the mapping in which one of our keys would have a meaning.
fn elsewhere(key: &str) -> Option<String> {
    use Context::{Concurrency, Descriptor, RateLimit, Root, ServiceLevel, Tier};
    let contexts = [Root, Descriptor, RateLimit, Concurrency, ServiceLevel, Tier];
    let right = contexts.into_iter().find(|context| context.has(key))?;
    Some(format!("`{key}` belongs {}", right.name()))
}

/// Applies the checks that envoyproxy/ratelimit makes even of values that it ignores.
fn check_ignored(key: &str, value: &Node, report: &mut Report<'_>) {
    match &value.kind {
        Kind::Scalar(scalar) => {
            check_leaf(key, value, scalar, report);
        }
        Kind::Map(_) => {
            Fields::new(value, Context::Ignored, report);
        }
        Kind::List(items) => {
            for item in items {
                if item.as_map().is_some() {
                    Fields::new(item, Context::Ignored, report);
                } else {
                    not_a_map(item, report);
                }
            }
        }
    }
}

/// Refuses decimals and huge numbers wherever envoyproxy/ratelimit reads a value.
pub(super) fn check_leaf(key: &str, node: &Node, scalar: &Scalar, report: &mut Report<'_>) -> bool {
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
