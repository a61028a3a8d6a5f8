//! Answers of `ratekeeper.v1` as JSON: the text that serde makes of them, written by hand for batches of hundreds. Serde
//! spends most of an answer's time looking for characters to escape in names that have none.

use ratekeeper_core::Micros;
use ratekeeper_limiter::LimitStatus;
use serde::Serialize;

use crate::protocol::v1::{AnsweredBy, CheckAnswer, HeldAnswer};

/// Appends an answer as JSON.
pub(super) fn write_answer(answer: &CheckAnswer<'_>, out: &mut Vec<u8>) {
    write_fields(answer, out);
    out.push(b'}');
}

/// Appends a decision, and the token of what is held.
pub(super) fn write_held(held: &HeldAnswer<'_>, out: &mut Vec<u8>) {
    write_fields(&held.answer, out);
    write_some(out, b",\"permit\":", held.permit);
    write_some(out, b",\"reservation\":", held.reservation);
    write_some(out, b",\"expires_after_ms\":", held.expires_after_ms);
    write_some(out, b",\"repeated_before\":", Some(held.repeated_before));
    out.push(b'}');
}

fn write_fields(answer: &CheckAnswer<'_>, out: &mut Vec<u8>) {
    let from = out.len();
    write_limit(out, answer.allowed, &answer.by, answer.delay_ms);
    let written = from..out.len();
    out.extend_from_slice(match answer.degraded {
        true => b",\"degraded\":true",
        false => b",\"degraded\":false",
    });
    if answer.unmatched {
        out.extend_from_slice(b",\"unmatched\":true");
    }
    write_some(out, b",\"unreadable\":", answer.unreadable);
    out.extend_from_slice(b",\"statuses\":[");
    for (number, status) in answer.statuses.iter().enumerate() {
        if number > 0 {
            out.push(b',');
        }
        // The text of the descriptor that decided is there already.
        match status.has_decided(answer) {
            true => out.extend_from_within(written.clone()),
            false => write_limit(out, status.allowed, &status.by, status.delay_ms),
        }
        if status.unlimited {
            out.extend_from_slice(b",\"unlimited\":true");
        }
        out.push(b'}');
    }
    out.push(b']');
    write_some(out, b",\"standing\":", answer.limits.as_ref());
}

/// Writes the fields that all decisions begin with.
fn write_limit(out: &mut Vec<u8>, allowed: bool, by: &AnsweredBy<'_>, delay_ms: Option<u64>) {
    out.extend_from_slice(match allowed {
        true => b"{\"decision\":\"allow\",\"rule\":",
        false => b"{\"decision\":\"deny\",\"rule\":",
    });
    match by {
        AnsweredBy::Limit(limit) => {
            let LimitStatus {
                rule,
                limit,
                remaining,
                reset_after,
                full_after,
                retry_after,
                is_over: _, // The decision tells it.
                debt,
            } = limit;
            let millis = |span: Micros| Some(span.as_millis_ceil());
            write_value(out, rule);
            write_some(out, b",\"limit\":", Some(*limit));
            write_some(out, b",\"remaining\":", Some(*remaining));
            write_some(out, b",\"reset_after_ms\":", millis(*reset_after));
            write_some(out, b",\"full_after_ms\":", millis(*full_after));
            write_some(out, b",\"retry_after_ms\":", retry_after.and_then(millis));
            write_some(out, b",\"debt\":", Some(*debt).filter(|debt| *debt > 0));
        }
        AnsweredBy::Unlimited(rule) => {
            write_value(out, rule);
            out.extend_from_slice(NO_STATE);
        }
        AnsweredBy::None => {
            out.extend_from_slice(b"null");
            out.extend_from_slice(NO_STATE);
        }
    }
    write_some(out, b",\"delay_ms\":", delay_ms);
}

const NO_STATE: &[u8] =
    b",\"limit\":null,\"remaining\":null,\"reset_after_ms\":null,\"full_after_ms\":null";

/// Writes a field, name and colon included, if it has a value.
fn write_some(out: &mut Vec<u8>, name: &[u8], value: Option<impl Serialize>) {
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
    use ratekeeper_core::Timestamp;
    use ratekeeper_limiter::{Check, Limiter, LimiterOptions};
    use ratekeeper_rules::{Options, Source, load};
    use ratekeeper_store::{MemoryConfig, MemoryStore};
    use serde_json::{Value, json};

    use super::*;

    const RULES: &str = "
domain: d
descriptors:
- { key: user, rate_limit: { window: 1h, limit: 1 } }
- { key: slow, rate_limit: { window: 1s, limit: 10, algorithm: leaky_bucket } }
- { key: staff, rate_limit: { unlimited: true } }
";

    fn limit(retry_after: Option<Micros>) -> LimitStatus<'static> {
        LimitStatus {
            rule: Some("api.key_\"quoted\"\n\u{1f980}".into()),
            limit: u64::MAX,
            remaining: 0,
            reset_after: Micros::new(1),
            full_after: Micros::new(1_001),
            retry_after,
            is_over: true,
            debt: 7,
        }
    }

    fn written(allowed: bool, by: &AnsweredBy<'_>, delay_ms: Option<u64>) -> Value {
        let mut out = Vec::new();
        write_limit(&mut out, allowed, by, delay_ms);
        out.push(b'}');
        serde_json::from_slice(&out).expect("it is JSON")
    }

    /// The answer by hand, which is serde's to the letter.
    fn both(answer: CheckAnswer<'_>) -> Value {
        let mut out = Vec::new();
        write_answer(&answer, &mut out);
        let serdes = serde_json::to_vec(&answer).expect("it is JSON");
        let text = |bytes| String::from_utf8(bytes).expect("it is text");
        let by_hand = text(out);
        assert_eq!(by_hand, text(serdes));
        let held = HeldAnswer {
            answer,
            permit: Some("a\"b"),
            reservation: Some("c"),
            expires_after_ms: Some(7),
            repeated_before: true,
        };
        let mut out = Vec::new();
        write_held(&held, &mut out);
        let serdes = serde_json::to_vec(&held).expect("it is JSON");
        assert_eq!(text(out), text(serdes));
        serde_json::from_str(&by_hand).expect("it is JSON")
    }

    #[test]
    fn what_is_written_by_hand_is_what_serde_writes() {
        let source = Source {
            name: "rules.yaml".to_owned(),
            text: RULES.to_owned(),
        };
        let loaded = load(&[source], &Options::default()).expect("the rules are valid");
        let store = MemoryStore::new(MemoryConfig::default()).expect("there is memory");
        let limiter = Limiter::new(loaded.rules, store, LimiterOptions::default());
        let mut check = Check::new("d");
        for key in ["user", "slow", "staff", "other"] {
            check.push([(key, "a")]);
        }
        let now = Timestamp::from_secs(1_800_000_000);
        let answers = [0, 1, 2].map(|number| {
            limiter.ask_at(&check, now, |ruling| {
                let answer = CheckAnswer::charged(ruling.decision);
                both(match number {
                    0 => answer,
                    _ => answer.with_limits(&ruling.policies(), ruling.descriptors, now),
                })
            })
        });
        assert_eq!(answers[0]["decision"], "allow");
        assert_eq!(answers[0]["statuses"][2]["unlimited"], true);
        assert_eq!(answers[0].get("standing"), None);
        assert_eq!(answers[1]["decision"], "deny");
        assert_eq!(answers[1]["standing"]["scope"], "user:a");
        assert_eq!(answers[1]["standing"]["binding"]["remaining"], 0);
        let alone = Check::new("d").descriptor([("other", "a")]);
        limiter.ask_at(&alone, now, |ruling| {
            assert_eq!(
                both(CheckAnswer::charged(ruling.decision))["unmatched"],
                true
            );
            both(CheckAnswer::peeked(ruling.decision, false));
        });
        let unreadable = both(CheckAnswer::unreadable(false, "a \"value\" is too long"));
        assert_eq!(unreadable["statuses"], json!([]));
    }

    #[test]
    fn a_limit_has_its_rule_and_state() {
        let limit = AnsweredBy::Limit(limit(Some(Micros::from_millis(7))));
        assert_eq!(
            written(false, &limit, None),
            json!({
                "decision": "deny",
                "rule": "api.key_\"quoted\"\n\u{1f980}",
                "limit": u64::MAX,
                "remaining": 0,
                "reset_after_ms": 1,
                "full_after_ms": 2,
                "retry_after_ms": 7,
                "debt": 7,
            })
        );
    }

    #[test]
    fn the_limit_of_a_request_has_no_rule() {
        let limit = AnsweredBy::Limit(LimitStatus {
            rule: None,
            ..limit(None)
        });
        let answer = written(true, &limit, Some(9));
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
        assert_eq!(written(true, &AnsweredBy::None, None), none(Value::Null));
        let unlimited = written(true, &AnsweredBy::Unlimited("staff"), None);
        assert_eq!(unlimited, none(json!("staff")));
    }
}
