//! What there is to tell of a request's limits.

use std::borrow::Cow;
use std::time::Duration;

use ratekeeper_core::{Micros, Timestamp, Verdict};
use ratekeeper_limiter::{Binding, Decision, Policy, Source};
use ratekeeper_rules::RuleSet;
use smallvec::SmallVec;

/// How a request stands with its limits: what clients are told, whether a limiter in this process decided or a service.
#[derive(Clone, PartialEq, Debug)]
pub struct Standing<'a> {
    /// Whether it may pass.
    pub allowed: bool,
    /// Whether some limit was answered without being counted.
    pub degraded: bool,
    /// When that was, since the Unix epoch: what dates count from.
    pub at: Timestamp,
    /// The limits that the request is held to; as many as are known.
    pub quotas: SmallVec<[Quota<'a>; 2]>,
    /// The most restrictive of them; none if no enforced limit matched.
    pub binding: Option<Bound<'a>>,
}

/// A limit that a request is held to: a quota policy, in the words of the IETF's draft.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Quota<'a> {
    /// What it is called: printable ASCII, another name for each quota of a request.
    pub name: Cow<'a, str>,
    /// Hits a window holds, or a larger burst; of a concurrency limit, requests in flight.
    pub limit: u64,
    /// The window; none where it is not known, and of a concurrency limit, which has none.
    pub window: Option<Micros>,
    /// Whether it limits how many requests are in flight.
    pub is_concurrency: bool,
}

/// The state of the limit that binds a request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Bound<'a> {
    /// The limit.
    pub quota: Quota<'a>,
    /// The id of the rule behind it.
    pub rule: Cow<'a, str>,
    /// Hits left; 0 after a denial.
    pub remaining: u64,
    /// When there is more than `remaining`, zero if nothing is missing; after a denial that a wait ends, the same as
    /// `retry_after`, so that clients may go by any word about time.
    pub reset_after: Micros,
    /// After a denial: when the same request would pass. None if no wait helps, or none is needed.
    pub retry_after: Option<Micros>,
}

impl Bound<'_> {
    /// Whole seconds to wait, at least 1, after a denial that a wait ends.
    #[must_use]
    pub fn retry_after_secs(&self) -> Option<u64> {
        self.retry_after.map(|wait| wait.as_secs_ceil().max(1))
    }
}

impl<'a> Standing<'a> {
    /// What `decision`, taken `at` a time, says of the request that `policies` hold.
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

    /// The same, borrowing nothing.
    #[must_use]
    pub fn into_owned(self) -> Standing<'static> {
        Standing {
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

    /// Denies what was allowed, since it cannot wait for its turn: in `wait` it could.
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
    /// A quota of which nothing is known but its name and its size, as a service tells it.
    #[must_use]
    pub fn named(name: &'a str, limit: u64) -> Self {
        Self {
            name: shown(name),
            limit,
            window: None,
            is_concurrency: false,
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

/// What a limit is called that came with the request.
const OVERRIDE: &str = "override";

/// What a policy is called: the rule's name; its id if another has taken that.
fn name<'a>(source: Source, taken: &[Quota<'_>], rules: &'a RuleSet) -> Cow<'a, str> {
    let (name, id) = match source {
        Source::Override => (OVERRIDE, OVERRIDE),
        Source::Rule(index) => {
            let rule = rules.rule(index);
            (rule.name.as_deref().unwrap_or(&rule.id), &*rule.id)
        }
    };
    let is_taken = |name: &str| taken.iter().any(|other| other.name == name);
    let mut name = shown(name);
    if is_taken(&name) {
        name = shown(id);
    }
    // Of several limits that a request brings along none has an id.
    if is_taken(&name) {
        name = Cow::Owned(format!("{name}-{}", taken.len()));
    }
    name
}

/// A text in the characters that a structured field or a header may hold: printable ASCII, the rest percent-encoded.
pub(super) fn shown(text: &str) -> Cow<'_, str> {
    // What encodes is encoded itself, so that two names stay two.
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
