//! The state of a request's limits, for headers and bodies.

use std::borrow::Cow;
use std::time::Duration;

use ratekeeper_core::{Micros, Timestamp, Verdict};
use ratekeeper_limiter::{Binding, Decision, LimitSource, Policy};
use ratekeeper_rules::RuleSet;
use ratekeeper_rules::window::format_duration;
use smallvec::SmallVec;

/// The state of a request's limits as reported to clients, whether a limiter in this process
/// decided or a service.
#[derive(Clone, PartialEq, Debug)]
pub struct LimitStatus<'a> {
    /// True if the request may pass.
    pub allowed: bool,
    /// True if a limit was answered without being counted.
    pub degraded: bool,
    /// The time of the decision since the Unix epoch, from which dates are computed.
    pub at: Timestamp,
    /// The limits that apply to the request, as far as they are known.
    pub quotas: SmallVec<[Quota<'a>; 2]>,
    /// The most restrictive of them; none if no enforced limit matched.
    pub binding: Option<Bound<'a>>,
}

/// A limit that applies to a request: a quota policy, in the terms of the IETF draft.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Quota<'a> {
    /// The name: printable ASCII, unique among the quotas of a request.
    pub name: Cow<'a, str>,
    /// Hits per window, or a larger burst; for concurrency limits, requests in flight.
    pub limit: u64,
    /// The window; none if it is not known, and for concurrency limits, which have none.
    pub window: Option<Micros>,
    /// True if it limits requests in flight.
    pub is_concurrency: bool,
}

/// The limit that is closest to denying a request, and its state.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Bound<'a> {
    /// The limit.
    pub quota: Quota<'a>,
    /// The id of the limit's rule.
    pub rule: Cow<'a, str>,
    /// Hits left; 0 after a denial.
    pub remaining: u64,
    /// Time until more than `remaining` is left, zero if the limit is unused; after a denial that a
    /// wait can end, the same as `retry_after`, so that clients may follow either.
    pub reset_after: Micros,
    /// After a denial: time until the same request would pass. None if no wait helps, or none is
    /// needed.
    pub retry_after: Option<Micros>,
}

impl Bound<'_> {
    /// Whole seconds to wait, at least 1, after a denial that a wait can end.
    #[must_use]
    pub fn retry_after_secs(&self) -> Option<u64> {
        self.retry_after.map(|wait| wait.as_secs_ceil().max(1))
    }
}

impl<'a> LimitStatus<'a> {
    /// The state after `decision`, taken `at` this time, of a request to which `policies` apply.
    #[must_use]
    pub fn new(policies: &[Policy], decision: &'a Decision, at: Timestamp) -> Self {
        let rules = decision.snapshot().rules();
        let mut quotas: SmallVec<[Quota<'a>; 2]> = SmallVec::new();
        for policy in policies {
            let quota = Quota::new(policy, name(policy.source, &quotas, rules));
            quotas.push(quota);
        }
        let binding = decision.binding().map(|binding| {
            let same = |(policy, _): &(&Policy, &Quota<'a>)| {
                policy.source == binding.source
                    && (policy.ceiling, policy.window) == (binding.ceiling, binding.window)
            };
            let known = policies.iter().zip(&quotas).find(same);
            let quota = known.map(|(_, quota)| quota.clone());
            Bound::new(decision, binding, quota)
        });
        Self {
            allowed: decision.allowed(),
            degraded: decision.is_degraded(),
            at,
            quotas,
            binding,
        }
    }

    /// A copy without borrowed parts.
    #[must_use]
    pub fn into_owned(self) -> LimitStatus<'static> {
        LimitStatus {
            allowed: self.allowed,
            degraded: self.degraded,
            at: self.at,
            quotas: self.quotas.into_iter().map(Quota::into_owned).collect(),
            binding: self.binding.map(|bound| Bound {
                quota: bound.quota.into_owned(),
                rule: Cow::Owned(bound.rule.into_owned()),
                ..bound
            }),
        }
    }

    /// Turns an allowance into a denial, because the request cannot wait for its turn, which is
    /// `wait` away.
    pub fn deny_for(&mut self, wait: Duration) {
        self.allowed = false;
        if let Some(binding) = &mut self.binding {
            let micros = u64::try_from(wait.as_micros()).unwrap_or(u64::MAX);
            binding.remaining = 0;
            binding.reset_after = Micros::new(micros);
            binding.retry_after = Some(binding.reset_after);
        }
    }
}

impl<'a> Quota<'a> {
    /// A quota of which only the name and the size are known, as a service reports it.
    #[must_use]
    pub fn named(name: &'a str, limit: u64) -> Self {
        Self {
            name: shown(name),
            limit,
            window: None,
            is_concurrency: false,
        }
    }

    /// The quota in words: `100 per 1m`, `5 at a time`.
    #[must_use]
    pub fn in_words(&self) -> String {
        match self.window {
            _ if self.is_concurrency => format!("{} at a time", self.limit),
            Some(window) => format!("{} per {}", self.limit, format_duration(window)),
            None => self.limit.to_string(),
        }
    }

    fn into_owned(self) -> Quota<'static> {
        Quota {
            name: Cow::Owned(self.name.into_owned()),
            ..self
        }
    }

    fn new(policy: &Policy, name: Cow<'a, str>) -> Self {
        Self {
            name,
            limit: policy.ceiling,
            window: (!policy.is_concurrency).then_some(policy.window),
            is_concurrency: policy.is_concurrency,
        }
    }
}

impl<'a> Bound<'a> {
    fn new(decision: &'a Decision, binding: &Binding, quota: Option<Quota<'a>>) -> Self {
        let answered = &binding.answered;
        let rule = decision.rule(binding).map_or(OVERRIDE, |rule| &rule.id);
        let is_later = answered.verdict == Verdict::Later;
        Self {
            quota: quota.unwrap_or_else(|| Quota {
                window: Some(binding.window),
                ..Quota::named(rule, binding.ceiling)
            }),
            rule: Cow::Borrowed(rule),
            remaining: if answered.fits() {
                answered.remaining
            } else {
                0
            },
            reset_after: answered.reset_after,
            retry_after: (!decision.allowed() && is_later).then_some(answered.retry_after),
        }
    }
}

/// The name of a limit that came with the request.
const OVERRIDE: &str = "override";

/// The name of a policy: the rule's name, or its id if another policy has that name.
fn name<'a>(source: LimitSource, taken: &[Quota<'_>], rules: &'a RuleSet) -> Cow<'a, str> {
    let (name, id) = match source {
        LimitSource::Override => (OVERRIDE, OVERRIDE),
        LimitSource::Rule(index) => {
            let rule = rules.rule(index);
            (rule.name.as_deref().unwrap_or(&rule.id), &*rule.id)
        }
    };
    let is_taken = |name: &str| taken.iter().any(|other| other.name == name);
    let mut name = shown(name);
    if is_taken(&name) {
        name = shown(id);
    }
    // A limit that the request brings along has no id.
    if is_taken(&name) {
        name = Cow::Owned(format!("{name}-{}", taken.len()));
    }
    name
}

/// The text in printable ASCII, as structured fields and headers require, with everything else
/// percent-encoded.
pub(super) fn shown(text: &str) -> Cow<'_, str> {
    // The percent sign is encoded as well, so that different names stay different.
    let is_plain = |byte: u8| matches!(byte, b' '..=b'~') && byte != b'%';
    if text.bytes().all(is_plain) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len());
    for byte in text.bytes() {
        match is_plain(byte) {
            true => shown.push(char::from(byte)),
            false => shown.push_str(&format!("%{byte:02X}")),
        }
    }
    Cow::Owned(shown)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_names_stay_two() {
        let names = ["\u{f6}", "%C3%B6", "%", "%25", "100 %", "a\"b"];
        assert_eq!(
            names.map(shown),
            ["%C3%B6", "%25C3%25B6", "%25", "%2525", "100 %25", "a\"b"]
        );
    }
}
