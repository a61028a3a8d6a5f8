//! Checks `usage:` at the top of a file.

use std::rc::Rc;

use crate::draft::Field;
use crate::format::mapping::read_mapping;
use crate::format::{TokenHits, Usage};
use crate::http_token::is_token;
use crate::mark::{At, Mark};
use crate::report::Report;
use crate::usage::{JsonPointer, USAGE_SUMS_MAX};
use crate::yaml::{Kind, Node};
use crate::{TokenWeights, UsageBody, UsageRules};

/// The form that needs no mapping.
const TOKENS: &str = "tokens";

/// Checks `usage:`; errors have been reported.
pub(super) fn check_usage(
    field: &mut Field<Rc<Node>>,
    report: &mut Report<'_>,
) -> Option<At<UsageRules>> {
    let key = field.key()?;
    let Some(node) = field.take() else {
        report.error(key, "`usage` is empty", "write `usage: tokens`");
        return None;
    };
    if let Kind::Scalar(scalar) = &node.kind {
        if *scalar.text != *TOKENS {
            let message = "`usage` is `tokens`, or a mapping of the places that tell it";
            let help = "write `usage: tokens` or `usage: { json: /usage/total_tokens }`";
            report.error(node.mark, message, help);
            return None;
        }
        let value = UsageRules::tokens(TokenWeights::default());
        return Some(At { value, mark: key });
    }
    let mut keys = read_mapping::<Usage>(&node, report)?.value;
    let rules = source(key, &mut keys, report)?;
    Some(At {
        value: UsageRules {
            estimate: keys.estimate.copied().unwrap_or(rules.estimate),
            reserve: keys.reserve.copied().unwrap_or(0),
            ..rules
        },
        mark: key,
    })
}

/// The rules of the places that `keys` name.
fn source(key: Mark, keys: &mut Usage, report: &mut Report<'_>) -> Option<UsageRules> {
    let names_tokens = keys.tokens.key();
    let names_places = keys.json.key().or(keys.sse.key()).or(keys.header.key());
    match (names_tokens, names_places) {
        (None, None) => {
            let message = "`usage` does not say where responses tell it";
            let help =
                "write `usage: tokens`, or `json: /usage/total_tokens` or `header: x-tokens` in it";
            report.error(key, message, help);
            None
        }
        (Some(mark), Some(_)) => {
            let message = "`tokens` is a choice of places, so there can be no others";
            report.error(
                mark,
                message,
                "leave out `tokens`, or `json`, `sse` and `header`",
            );
            None
        }
        (Some(_), None) => {
            let hits = keys.tokens.take().map(|hits| hits.value);
            Some(UsageRules::tokens(weights(&hits.unwrap_or_default())))
        }
        (None, Some(_)) => places(keys, report),
    }
}

fn weights(hits: &TokenHits) -> TokenWeights {
    let usual = TokenWeights::default();
    let input = hits.input.copied().unwrap_or(usual.input);
    TokenWeights {
        input,
        cached_input: hits.cached_input.copied().unwrap_or(input),
        output: hits.output.copied().unwrap_or(usual.output),
    }
}

fn places(keys: &mut Usage, report: &mut Report<'_>) -> Option<UsageRules> {
    let name = keys.header.take_at();
    if let Some(At { value, mark }) = &name
        && !is_token(value.as_bytes())
    {
        let message = "`header` is no name of a header";
        report.error(*mark, message, "write `header: x-tokens`");
        return None;
    }
    let mut rules = UsageRules::header(name.as_ref().map_or("", |name| &name.value));
    rules.header = rules.header.filter(|_| name.is_some());
    let has_events = keys.sse.is_set();
    let of_json = match has_events {
        true => UsageBody::Whole,
        false => UsageBody::Any,
    };
    let json = keys.json.take().unwrap_or_default();
    let sse = keys.sse.take().unwrap_or_default();
    let json = json.into_iter().map(|place| (place, of_json));
    let sse = sse.into_iter().map(|place| (place, UsageBody::Events));
    for ((pointer, weight), body) in json.chain(sse) {
        let At { value, mark }: At<JsonPointer> = pointer;
        if rules.sums.len() == USAGE_SUMS_MAX {
            let message = format!("`usage` has more than {USAGE_SUMS_MAX} places");
            report.error(mark, message, "leave some out");
            return None;
        }
        rules.add(value, body, weight);
    }
    Some(rules)
}
