//! Compares the answers with what was expected of them.

use super::seen::{Run, State};
use ratekeeper_core::Micros;
use ratekeeper_core::duration::format_duration;
use ratekeeper_rules::{ExpectedAnswers, TestAnswer, WaitTime};
use serde::Serialize;

/// A part of the answers that is other than expected.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub(super) struct Mismatch {
    /// The key of `expect`; `step` if the step cannot be run.
    pub(super) what: &'static str,
    pub(super) expected: String,
    pub(super) actual: String,
}

impl Mismatch {
    /// A step that cannot be run.
    pub(super) fn of_step(fault: &str) -> Self {
        Self {
            what: "step",
            expected: "a request".to_owned(),
            actual: fault.to_owned(),
        }
    }
}

/// The parts that are expected, found to be the same or not.
#[derive(Default)]
struct Found(Vec<Mismatch>);

impl Found {
    /// Compares a part, if one is expected.
    fn part(&mut self, what: &'static str, expected: Option<String>, actual: impl Into<String>) {
        let actual = actual.into();
        if let Some(expected) = expected.filter(|expected| *expected != actual) {
            self.0.push(Mismatch {
                what,
                expected,
                actual,
            });
        }
    }
}

/// Compares the answers to a step's requests.
pub(super) fn run(expected: &ExpectedAnswers, run: &Run) -> Vec<Mismatch> {
    let mut found = Found::default();
    let last = &run.last;
    let refused = expected.refused.map(refused_with);
    found.part("refused", refused, "no refusal");
    let decision = expected.decision.map(|answer| all(answer, run));
    found.part("decision", decision, answers(run));
    let count = |count: Option<u64>| count.map(|count| count.to_string());
    found.part("allowed", count(expected.allowed), run.allowed.to_string());
    found.part("denied", count(expected.denied), run.denied.to_string());
    let rule = match &expected.rule {
        Some(id) => Some(id.as_deref().unwrap_or(NONE).to_owned()),
        // A request that no rule knows is allowed whatever they say.
        None if !last.is_matched && passes(expected) => Some(ANY.to_owned()),
        None => None,
    };
    let id = last.rule.as_ref().map_or(NONE, |rule| &rule.id);
    found.part("rule", rule, id);
    let state = |of: fn(&State) -> String| {
        let state = last.status.as_ref();
        state.map_or_else(|| "no limit".to_owned(), of)
    };
    let limit = state(|state| state.limit.to_string());
    found.part("limit", count(expected.limit), limit);
    let remaining = state(|state| state.remaining.to_string());
    found.part("remaining", count(expected.remaining), remaining);
    let retry_after = state(|state| state.retry_after.map_or("no wait".to_owned(), waited));
    found.part("retry_after", expected.retry_after.map(waited), retry_after);
    let reset_after = state(|state| told(state.reset_after));
    found.part("reset_after", expected.reset_after.map(told), reset_after);
    found.part("delay", expected.delay.map(told), told(last.delay));
    let shadow = expected.shadow_denied.clone().map(|mut ids| {
        ids.sort();
        ids.dedup();
        listed(&ids)
    });
    let actual = listed(&last.shadow_denied);
    found.part("shadow_denied", shadow, actual);
    found.0
}

/// Compares the refusal of a step's HTTP request, which no limit was asked about.
pub(super) fn refusal(expected: &ExpectedAnswers, status: u16, why: &str) -> Vec<Mismatch> {
    let actual = refused_with(status);
    if expected.refused == Some(status) || *expected == ExpectedAnswers::default() {
        return Vec::new();
    }
    vec![Mismatch {
        what: "refused",
        expected: match expected.refused {
            Some(status) => refused_with(status),
            None => "no refusal".to_owned(),
        },
        actual: format!("{actual}: {why}"),
    }]
}

const NONE: &str = "none";
const ANY: &str = "any, or `rule: ~`";

/// Returns true if a request is expected to be allowed.
fn passes(expected: &ExpectedAnswers) -> bool {
    expected.decision == Some(TestAnswer::Allowed) || expected.allowed.is_some_and(|it| it > 0)
}

fn listed(ids: &[Box<str>]) -> String {
    match ids {
        [] => NONE.to_owned(),
        ids => ids.join(", "),
    }
}

fn refused_with(status: u16) -> String {
    format!("refused with {status}")
}

/// The same answer to all requests, in words.
fn all(answer: TestAnswer, run: &Run) -> String {
    let all = run.allowed + run.denied;
    match run.with(answer) == all {
        true => answers(run),
        false if all == 1 => answer.name().to_owned(),
        false => format!("all {all} {}", answer.name()),
    }
}

/// The answers to all requests, in words.
fn answers(run: &Run) -> String {
    match (run.allowed, run.denied) {
        (1, 0) => TestAnswer::Allowed.name().to_owned(),
        (0, 1) => TestAnswer::Denied.name().to_owned(),
        (all, 0) => format!("all {all} allowed"),
        (0, all) => format!("all {all} denied"),
        (allowed, denied) => format!("{allowed} allowed, {denied} denied"),
    }
}

fn waited(wait: WaitTime) -> String {
    match wait {
        WaitTime::After(wait) => told(wait),
        WaitTime::Never => "never".to_owned(),
    }
}

/// A wait in the whole milliseconds that callers are told.
fn told(wait: Micros) -> String {
    format_duration(Micros::from_millis(wait.get().div_ceil(1_000)))
}

#[cfg(test)]
mod tests {
    use super::super::seen::Seen;
    use super::*;

    fn seen(allowed: u64, denied: u64, retry_after: Option<WaitTime>) -> Run {
        Run {
            allowed,
            denied,
            last: Seen {
                is_matched: true,
                status: Some(State {
                    limit: 5,
                    remaining: 0,
                    reset_after: Micros::new(999_001),
                    retry_after,
                }),
                ..Seen::default()
            },
        }
    }

    fn mismatches(expected: &ExpectedAnswers, run: &Run) -> Vec<String> {
        let found = super::run(expected, run).into_iter();
        let lines = found.map(|it| format!("{}: {} / {}", it.what, it.expected, it.actual));
        lines.collect()
    }

    #[test]
    fn nothing_expected_is_nothing_wrong() {
        let expected = ExpectedAnswers::default();
        assert!(run(&expected, &seen(1, 1, None)).is_empty());
        assert!(refusal(&expected, 401, "no key").is_empty());
    }

    #[test]
    fn each_part_is_compared() {
        let mut expected = ExpectedAnswers::default();
        expected.decision = Some(TestAnswer::Denied);
        expected.rule = Some(Some("d.a".into()));
        expected.remaining = Some(1);
        expected.retry_after = Some(WaitTime::Never);
        expected.reset_after = Some(Micros::from_secs(1));
        assert_eq!(
            mismatches(
                &expected,
                &seen(3, 2, Some(WaitTime::After(Micros::from_secs(1))))
            ),
            [
                "decision: all 5 denied / 3 allowed, 2 denied",
                "rule: d.a / none",
                "remaining: 1 / 0",
                "retry_after: never / 1s",
            ]
        );
    }

    #[test]
    fn waits_are_compared_in_the_milliseconds_that_callers_are_told() {
        let mut expected = ExpectedAnswers::default();
        expected.retry_after = Some(WaitTime::After(Micros::from_millis(334)));
        let wait = |micros| seen(0, 1, Some(WaitTime::After(Micros::new(micros))));
        assert!(run(&expected, &wait(333_334)).is_empty());
        assert_eq!(
            mismatches(&expected, &wait(334_001)),
            ["retry_after: 334ms / 335ms"]
        );
        assert_eq!(
            mismatches(&expected, &seen(1, 0, None)),
            ["retry_after: 334ms / no wait"]
        );
    }

    #[test]
    fn a_refusal_is_expected_by_its_status() {
        let mut expected = ExpectedAnswers::default();
        expected.refused = Some(401);
        assert!(refusal(&expected, 401, "no key").is_empty());
        assert_eq!(
            refusal(&expected, 400, "odd")[0].actual,
            "refused with 400: odd"
        );
        assert_eq!(
            mismatches(&expected, &seen(1, 0, None)),
            ["refused: refused with 401 / no refusal"]
        );
    }
}
