//! Answers of `ratekeeper.v1` as JSON. A limit's fields are null where none matched; other fields
//! are left out where they say nothing.
//!
//! Decisions are written by hand, for batches of hundreds: serde spends most of an answer's time
//! looking for characters to escape in names that have none.

use serde::Serialize;

use crate::v1::{Answer, HeldAnswer, LimitAnswer};

/// Appends an answer as JSON.
pub(super) fn write_answer(answer: &Answer<'_>, out: &mut Vec<u8>) {
    write_fields(answer, out);
    out.push(b'}');
}

/// Appends a decision, and the token of what is held as `token_name`.
pub(super) fn write_held(held: &HeldAnswer<'_>, token_name: &str, out: &mut Vec<u8>) {
    write_fields(&held.answer, out);
    if let Some(token) = held.token {
        out.push(b',');
        write_value(out, token_name);
        out.push(b':');
        write_value(out, token);
    }
    write_some(out, b",\"expires_after_ms\":", held.expires_after_ms);
    out.extend_from_slice(b",\"repeated_before\":");
    write_value(out, &held.repeated_before);
    out.push(b'}');
}

fn write_fields(answer: &Answer<'_>, out: &mut Vec<u8>) {
    write_limit(
        out,
        answer.allowed,
        Limit::of(answer.limit),
        answer.delay_ms(),
    );
    out.extend_from_slice(match answer.is_degraded() {
        true => b",\"degraded\":true",
        false => b",\"degraded\":false",
    });
    if answer.is_unmatched() {
        out.extend_from_slice(b",\"unmatched\":true");
    }
    if let Some(why) = answer.unreadable {
        out.extend_from_slice(b",\"unreadable\":");
        write_value(out, why);
    }
    out.extend_from_slice(b",\"statuses\":[");
    for (number, status) in answer.statuses().enumerate() {
        if number > 0 {
            out.push(b',');
        }
        let limit = match (status.limit, status.unlimited_rule) {
            (None, Some(rule)) => Limit::Unlimited(rule),
            (limit, _) => Limit::of(limit),
        };
        write_limit(out, status.allowed, limit, status.delay_ms);
        if status.unlimited_rule.is_some() {
            out.extend_from_slice(b",\"unlimited\":true");
        }
        out.push(b'}');
    }
    out.push(b']');
    if let Some(standing) = &answer.standing {
        out.extend_from_slice(b",\"standing\":");
        write_value(out, standing);
    }
}

/// The limit that answered.
#[derive(Clone, Copy)]
enum Limit<'a> {
    None,
    /// The rule that exempts from limits.
    Unlimited(&'a str),
    Counted(LimitAnswer<'a>),
}

impl<'a> Limit<'a> {
    fn of(limit: Option<LimitAnswer<'a>>) -> Self {
        limit.map_or(Self::None, Self::Counted)
    }
}

/// Writes the fields that all decisions begin with.
fn write_limit(out: &mut Vec<u8>, allowed: bool, limit: Limit<'_>, delay_ms: Option<u64>) {
    out.extend_from_slice(match allowed {
        true => b"{\"decision\":\"allow\",\"rule\":",
        false => b"{\"decision\":\"deny\",\"rule\":",
    });
    match limit {
        Limit::Counted(limit) => {
            write_value(out, &limit.rule);
            write_some(out, b",\"limit\":", Some(limit.limit));
            write_some(out, b",\"remaining\":", Some(limit.remaining));
            write_some(out, b",\"reset_after_ms\":", Some(limit.reset_after_ms));
            write_some(out, b",\"full_after_ms\":", Some(limit.full_after_ms));
            write_some(out, b",\"retry_after_ms\":", limit.retry_after_ms);
        }
        Limit::Unlimited(rule) => {
            write_value(out, rule);
            out.extend_from_slice(NO_STATE);
        }
        Limit::None => {
            out.extend_from_slice(b"null");
            out.extend_from_slice(NO_STATE);
        }
    }
    write_some(out, b",\"delay_ms\":", delay_ms);
}

const NO_STATE: &[u8] =
    b",\"limit\":null,\"remaining\":null,\"reset_after_ms\":null,\"full_after_ms\":null";

/// Writes a field, name and colon included, if it has a value.
fn write_some(out: &mut Vec<u8>, name: &[u8], value: Option<u64>) {
    if let Some(value) = value {
        out.extend_from_slice(name);
        write_value(out, &value);
    }
}

fn write_value(out: &mut Vec<u8>, value: &(impl Serialize + ?Sized)) {
    // Numbers and texts can always be written, and memory takes them.
    let _ = serde_json::to_writer(out, value);
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn limit(retry_after_ms: Option<u64>) -> LimitAnswer<'static> {
        LimitAnswer {
            rule: Some("api.key_\"quoted\"\n\u{1f980}"),
            limit: u64::MAX,
            remaining: 0,
            reset_after_ms: 1,
            full_after_ms: 2,
            retry_after_ms,
        }
    }

    fn written(allowed: bool, limit: Limit<'_>, delay_ms: Option<u64>) -> Value {
        let mut out = Vec::new();
        write_limit(&mut out, allowed, limit, delay_ms);
        out.push(b'}');
        serde_json::from_slice(&out).expect("it is JSON")
    }

    #[test]
    fn a_limit_has_its_rule_and_state() {
        assert_eq!(
            written(false, Limit::Counted(limit(Some(7))), None),
            json!({
                "decision": "deny",
                "rule": "api.key_\"quoted\"\n\u{1f980}",
                "limit": u64::MAX,
                "remaining": 0,
                "reset_after_ms": 1,
                "full_after_ms": 2,
                "retry_after_ms": 7,
            })
        );
    }

    #[test]
    fn the_limit_of_a_request_has_no_rule() {
        let limit = LimitAnswer {
            rule: None,
            ..limit(None)
        };
        let answer = written(true, Limit::Counted(limit), Some(9));
        assert_eq!(answer["rule"], Value::Null);
        assert_eq!(answer["delay_ms"], json!(9));
        assert_eq!(answer.get("retry_after_ms"), None);
    }

    #[test]
    fn without_a_limit_there_is_no_state() {
        let none = |rule: Value| {
            json!({
                "decision": "allow",
                "rule": rule,
                "limit": null,
                "remaining": null,
                "reset_after_ms": null,
                "full_after_ms": null,
            })
        };
        assert_eq!(written(true, Limit::None, None), none(Value::Null));
        let unlimited = written(true, Limit::Unlimited("staff"), None);
        assert_eq!(unlimited, none(json!("staff")));
    }
}
