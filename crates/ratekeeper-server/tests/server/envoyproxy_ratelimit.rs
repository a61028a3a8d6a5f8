//! Answers of envoyproxy/ratelimit, recorded, are ours.
//!
//! With Go installed, `cargo xtask compat --record crates/ratekeeper-server/tests/server/envoyproxy_ratelimit.jsonl`
//! records them again: what the real service said to random requests under random rules, but for the differences that
//! docs/migrating-from-envoy-ratelimit.md lists.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use ratekeeper_server::LimitHeaderNames;
use serde::Deserialize;
use serde_json::Value;

use crate::support::{envoy, start_with};

#[derive(Deserialize)]
struct Line {
    rules: String,
    asked: Vec<Step>,
}

#[derive(Deserialize)]
struct Step {
    body: String,
    status: u16,
    answer: Option<Value>,
}

/// Waits for the next day if this one ends within the minute: all windows that end then would start over while a line
/// is played.
async fn today() {
    let left = until_reset(&"DAY".into(), now());
    if left < 60 {
        tokio::time::sleep(Duration::from_secs(left)).await;
    }
}

/// Seconds since 1970.
fn now() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.unwrap().as_secs()
}

/// Seconds until the window of `unit` ends, as of `now`.
fn until_reset(unit: &Value, now: u64) -> u64 {
    let day = 86_400;
    let length = match unit.as_str().unwrap() {
        "DAY" => day,
        "WEEK" => 7 * day,
        "MONTH" => 30 * day,
        "YEAR" => 365 * day,
        other => panic!("{other} is too short to be recorded"),
    };
    length - now % length
}

/// Takes the times until a reset out, which follow from the clock, and checks them: the request was sent at `sent`, and
/// answered since.
fn without_times(mut answer: Value, sent: u64) -> Value {
    let mut resets = Vec::new();
    for status in answer["statuses"].as_array_mut().unwrap() {
        let status = status.as_object_mut().unwrap();
        let Some(limit) = status.get("currentLimit") else {
            assert!(!status.contains_key("durationUntilReset"));
            continue;
        };
        let (first, last) = (
            until_reset(&limit["unit"], sent),
            until_reset(&limit["unit"], now()),
        );
        let said = status
            .remove("durationUntilReset")
            .expect("a limit has a reset");
        let said: u64 = said
            .as_str()
            .unwrap()
            .strip_suffix('s')
            .unwrap()
            .parse()
            .unwrap();
        // No window ends while a line is played.
        assert!(
            (last..=first).contains(&said),
            "{said} s, not from {last} to {first} s"
        );
        resets.push(said.to_string());
    }
    if let Some(headers) = answer.get_mut("responseHeadersToAdd") {
        let reset = headers.as_array_mut().unwrap().pop().unwrap();
        assert_eq!(reset["key"], "RateLimit-Reset");
        assert!(
            resets.iter().any(|said| reset["value"] == **said),
            "{reset}"
        );
    }
    answer
}

#[tokio::test]
async fn recorded_answers_of_envoyproxy_ratelimit_are_ours() {
    for line in include_str!("envoyproxy_ratelimit.jsonl").lines() {
        let Line { rules, asked } = serde_json::from_str(line).unwrap();
        today().await;
        let running = start_with(&rules, |config| {
            envoy(config);
            config.rls.limit_headers = Some(LimitHeaderNames::default());
            config.rls.dynamic_metadata = true;
        })
        .await;
        for step in asked {
            let sent = now();
            let (status, text) = running.http("POST", "/json", &step.body).await;
            assert_eq!(status, step.status, "{}: {text}\n{rules}", step.body);
            if let Some(expected) = step.answer {
                let answer = without_times(serde_json::from_str(&text).unwrap(), sent);
                assert_eq!(answer, expected, "{}\n{rules}", step.body);
            }
        }
        running.stop().await;
    }
}
