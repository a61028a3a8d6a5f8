//! The answers to `/v1/check` and `/v1/checks`.

use ratekeeper_core::{Micros, Verdict};
use ratekeeper_limiter::{Binding, Code, Decision, Status};
use serde::Serialize;

use super::standing::StandingAnswer;

/// A decision. Times are whole milliseconds, rounded up; null where no limit matched.
#[derive(Serialize, Debug)]
pub(super) struct Answer<'a> {
    decision: Word,
    #[serde(flatten)]
    limit: Limit<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    delay_ms: Option<u64>,
    /// True if some limit was answered without being counted.
    degraded: bool,
    /// True if no limit matched any of its descriptors.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    unmatched: bool,
    /// One for each descriptor, in the same order.
    statuses: Vec<StatusAnswer<'a>>,
    /// Present if the request asked for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    standing: Option<StandingAnswer<'a>>,
}

#[derive(Serialize, Clone, Copy, PartialEq, Eq, Debug)]
#[serde(rename_all = "snake_case")]
enum Word {
    Allow,
    Deny,
}

#[derive(Serialize, Debug)]
struct StatusAnswer<'a> {
    decision: Word,
    #[serde(flatten)]
    limit: Limit<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    delay_ms: Option<u64>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    unlimited: bool,
}

/// The limit that answered.
#[derive(Serialize, Debug, Default)]
struct Limit<'a> {
    rule: Option<&'a str>,
    limit: Option<u64>,
    remaining: Option<u64>,
    /// Time until there is more than `remaining`; on a denial, until the same hits would pass.
    reset_after_ms: Option<u64>,
    /// Time until the full limit is available again.
    full_after_ms: Option<u64>,
    /// Time until the same hits would pass; after a peek, until one hit would. Absent if now or
    /// never.
    #[serde(skip_serializing_if = "Option::is_none")]
    retry_after_ms: Option<u64>,
}

impl<'a> Answer<'a> {
    /// Turns `decision` into an answer. If the request passed, only a peek gets `retry_after_ms`,
    /// though one of its limits may be exceeded without denying it (quota mode).
    pub(super) fn new(decision: &'a Decision, is_peek: bool) -> Self {
        let mut limit = decision
            .binding()
            .map(|binding| Limit::new(decision, binding))
            .unwrap_or_default();
        if decision.allowed() && !is_peek {
            limit.retry_after_ms = None;
        }
        let status = |status: &Status| StatusAnswer::new(decision, status);
        Self {
            decision: if decision.allowed() {
                Word::Allow
            } else {
                Word::Deny
            },
            limit,
            delay_ms: millis(decision.delay()),
            degraded: decision.is_degraded(),
            unmatched: decision.is_unmatched(),
            statuses: decision.statuses().iter().map(status).collect(),
            standing: None,
        }
    }

    /// Adds the standing of the request.
    pub(super) fn with(self, standing: Option<StandingAnswer<'a>>) -> Self {
        Self { standing, ..self }
    }

    /// Turns `decision`, which took nothing, into the answer about one more hit.
    pub(super) fn of_peek(decision: &'a Decision, would_allow: bool) -> Self {
        Self {
            decision: match would_allow {
                true => Word::Allow,
                false => Word::Deny,
            },
            ..Self::new(decision, true)
        }
    }

    pub(super) fn is_denial(&self) -> bool {
        self.decision == Word::Deny
    }

    /// Whole seconds to wait after a denial; None if no wait helps.
    pub(super) fn retry_after_secs(&self) -> Option<u64> {
        self.limit
            .retry_after_ms
            .map(|millis| millis.div_ceil(1_000))
    }
}

impl<'a> StatusAnswer<'a> {
    fn new(decision: &'a Decision, status: &Status) -> Self {
        let unlimited = status.unlimited.map(|index| {
            let rule = decision.snapshot().rules().rule(index);
            Limit {
                rule: Some(&rule.id),
                ..Limit::default()
            }
        });
        let limit = status
            .binding
            .as_ref()
            .map(|binding| Limit::new(decision, binding));
        Self {
            decision: match status.code {
                Code::Ok => Word::Allow,
                Code::OverLimit => Word::Deny,
            },
            unlimited: unlimited.is_some(),
            limit: limit.or(unlimited).unwrap_or_default(),
            delay_ms: millis(status.delay),
        }
    }
}

impl<'a> Limit<'a> {
    fn new(decision: &'a Decision, binding: &Binding) -> Self {
        let answered = &binding.answered;
        Self {
            rule: decision.rule(binding).map(|rule| &*rule.id),
            limit: Some(binding.ceiling),
            remaining: Some(answered.remaining),
            reset_after_ms: Some(answered.reset_after.as_millis_ceil()),
            full_after_ms: Some(answered.full_after.as_millis_ceil()),
            retry_after_ms: match answered.verdict {
                Verdict::Never => None,
                Verdict::Fits | Verdict::Later => millis(answered.retry_after),
            },
        }
    }
}

/// The answers as text, for batches of hundreds: serde spends most of an answer's time looking for
/// characters to escape in names that have none.
impl Answer<'_> {
    /// Appends the answer as JSON, as serde writes it.
    pub(super) fn write(&self, out: &mut Vec<u8>) {
        write_limit(out, self.decision, &self.limit, self.delay_ms);
        out.extend_from_slice(match self.degraded {
            true => b",\"degraded\":true",
            false => b",\"degraded\":false",
        });
        if self.unmatched {
            out.extend_from_slice(b",\"unmatched\":true");
        }
        out.extend_from_slice(b",\"statuses\":[");
        for (number, status) in self.statuses.iter().enumerate() {
            if number > 0 {
                out.push(b',');
            }
            write_limit(out, status.decision, &status.limit, status.delay_ms);
            if status.unlimited {
                out.extend_from_slice(b",\"unlimited\":true");
            }
            out.push(b'}');
        }
        out.push(b']');
        if let Some(standing) = &self.standing {
            out.extend_from_slice(b",\"standing\":");
            write_value(out, standing);
        }
        out.push(b'}');
    }
}

/// The fields that all answers begin with.
fn write_limit(out: &mut Vec<u8>, decision: Word, limit: &Limit<'_>, delay_ms: Option<u64>) {
    out.extend_from_slice(match decision {
        Word::Allow => b"{\"decision\":\"allow\",\"rule\":",
        Word::Deny => b"{\"decision\":\"deny\",\"rule\":",
    });
    write_value(out, &limit.rule);
    out.extend_from_slice(b",\"limit\":");
    write_value(out, &limit.limit);
    out.extend_from_slice(b",\"remaining\":");
    write_value(out, &limit.remaining);
    out.extend_from_slice(b",\"reset_after_ms\":");
    write_value(out, &limit.reset_after_ms);
    out.extend_from_slice(b",\"full_after_ms\":");
    write_value(out, &limit.full_after_ms);
    if limit.retry_after_ms.is_some() {
        out.extend_from_slice(b",\"retry_after_ms\":");
        write_value(out, &limit.retry_after_ms);
    }
    if delay_ms.is_some() {
        out.extend_from_slice(b",\"delay_ms\":");
        write_value(out, &delay_ms);
    }
}

fn write_value(out: &mut Vec<u8>, value: &impl Serialize) {
    // Numbers and texts can always be written, and memory takes them.
    let _ = serde_json::to_writer(out, value);
}

/// None if there is nothing to wait for, or no wait helps.
fn millis(span: Micros) -> Option<u64> {
    (span > Micros::ZERO && span < Micros::MAX).then(|| span.as_millis_ceil())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_written_as_serde_writes_it() {
        let some = |number: u64, bit: u32| (number >> bit & 1 == 1).then_some(number << bit);
        for number in 0..64 {
            let limit = || Limit {
                rule: (number % 3 > 0).then_some("api.key_\"quoted\"\n\u{1f980}"),
                limit: some(number, 0),
                remaining: some(number, 1),
                reset_after_ms: some(number, 2),
                full_after_ms: some(number, 1),
                retry_after_ms: some(number, 3),
            };
            let decision = [Word::Allow, Word::Deny][number as usize % 2];
            let status = |unlimited: bool| StatusAnswer {
                decision,
                limit: limit(),
                delay_ms: some(number, 5),
                unlimited,
            };
            let answer = Answer {
                decision,
                limit: limit(),
                delay_ms: some(number, 4),
                degraded: number % 5 == 0,
                unmatched: number % 6 == 0,
                statuses: [true, false, true]
                    .map(status)
                    .into_iter()
                    .take(number as usize % 4)
                    .collect(),
                standing: (number % 7 == 0).then(StandingAnswer::default),
            };
            let mut written = Vec::new();
            answer.write(&mut written);
            assert_eq!(
                String::from_utf8(written).unwrap(),
                serde_json::to_string(&answer).unwrap()
            );
        }
    }
}
