//! The answers to a step's requests.

use ratekeeper_core::Micros;
use ratekeeper_limiter::{Check, Decision};
use ratekeeper_rules::{Rule, TestAnswer, WaitTime};

/// The answers to a step's requests.
#[derive(Default)]
pub(super) struct Run {
    pub(super) allowed: u64,
    pub(super) denied: u64,
    pub(super) last: Seen,
}

impl Run {
    pub(super) const fn count(&mut self, answer: TestAnswer) {
        match answer {
            TestAnswer::Allowed => self.allowed += 1,
            TestAnswer::Denied => self.denied += 1,
        }
    }

    /// The number of requests with that answer.
    pub(super) const fn with(&self, answer: TestAnswer) -> u64 {
        match answer {
            TestAnswer::Allowed => self.allowed,
            TestAnswer::Denied => self.denied,
        }
    }
}

/// One answer.
#[derive(Default)]
pub(super) struct Seen {
    /// The rule that decided, or that is unlimited; [`None`] if no limit applied.
    pub(super) rule: Option<Deciding>,
    /// True if a rule matched, one in shadow included.
    pub(super) is_matched: bool,
    /// The state of the limit; [`None`] if none applied.
    pub(super) status: Option<State>,
    pub(super) delay: Micros,
    /// The ids of the rules in shadow that were over, sorted.
    pub(super) shadow_denied: Vec<Box<str>>,
    /// A name in the rules that is similar to the request's, if no limit applied.
    pub(super) nearest: Option<String>,
}

/// The rule behind an answer.
pub(super) struct Deciding {
    pub(super) id: Box<str>,
    in_words: String,
    place: String,
}

/// The state of the limit that decided.
pub(super) struct State {
    pub(super) limit: u64,
    pub(super) remaining: u64,
    pub(super) reset_after: Micros,
    /// [`None`] for an allowed request.
    pub(super) retry_after: Option<WaitTime>,
}

impl Seen {
    pub(super) fn of(decision: &Decision, check: &Check<'_>) -> Self {
        let snapshot = decision.snapshot();
        let rules = snapshot.rules();
        let unlimited = decision
            .answers()
            .iter()
            .find_map(|answer| answer.unlimited);
        let rule = match decision.binding() {
            Some(binding) => decision.rule(binding),
            None => unlimited.map(|index| rules.rule(index)),
        };
        let mut answers = decision.answers().iter();
        let is_matched = answers.any(|it| it.binding.is_some() || it.unlimited.is_some());
        let shadowed = decision.shadowed().iter();
        let shadowed = shadowed.filter_map(|denial| snapshot.rule(denial.source));
        let mut shadow_denied: Vec<Box<str>> = shadowed.map(|rule| (&*rule.id).into()).collect();
        shadow_denied.sort();
        shadow_denied.dedup();
        let mut unmatched = check.descriptors().filter(|_| rule.is_none());
        let nearest = unmatched.find_map(|it| rules.nearest(it.domain, it.entries));
        Self {
            rule: rule.map(Deciding::of),
            is_matched,
            status: decision.limit_status().map(|status| State {
                limit: status.limit,
                remaining: status.remaining,
                reset_after: status.reset_after,
                retry_after: match (decision.allowed(), status.retry_after) {
                    (true, _) => None,
                    (false, Some(wait)) => Some(WaitTime::After(wait)),
                    (false, None) => Some(WaitTime::Never),
                },
            }),
            delay: decision.delay(),
            shadow_denied,
            nearest: nearest.map(|name| name.to_string()),
        }
    }

    /// The limit that decided, in words.
    pub(super) fn decided_by(&self) -> String {
        match (&self.rule, &self.nearest) {
            (Some(rule), _) => format!("{}: {} ({})", rule.id, rule.in_words, rule.place),
            (None, Some(name)) => format!("no limit applied; the rules have {name}"),
            (None, None) => "no limit applied".to_owned(),
        }
    }
}

impl Deciding {
    fn of(rule: &Rule) -> Self {
        Self {
            id: (&*rule.id).into(),
            in_words: rule.in_words(),
            place: rule.place.to_string(),
        }
    }
}
