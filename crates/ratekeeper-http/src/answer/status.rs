//! The state of a request's limits, for headers and bodies.

use std::borrow::Cow;
use std::time::Duration;

use ratekeeper_core::duration::format_duration;
use ratekeeper_core::{Micros, Timestamp};
use ratekeeper_limiter::{Binding, Decision, LimitSource, LimitStatus, Policy, RequestDescriptors};
use ratekeeper_rules::RuleSet;
use serde::ser::SerializeStruct;
use serde::{Serialize, Serializer};
use smallvec::SmallVec;

use super::scope;

/// The state of a request's limits as reported to clients, whether a limiter in this process
/// decided or a service. Serialized, it is `standing` in the JSON of `ratekeeper.v1`: spans are microseconds, and not
/// rounded.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct RequestStatus<'a> {
    /// True if the request may pass.
    #[serde(skip)]
    pub allowed: bool,
    /// True if a limit was answered without being counted.
    #[serde(skip)]
    pub degraded: bool,
    /// The time of the decision since the Unix epoch, from which dates are computed.
    #[serde(rename = "decided_at_us", serialize_with = "in_micros")]
    pub at: Timestamp,
    /// The limits that apply to the request, as far as they are known.
    #[serde(rename = "policies", serialize_with = "listed")]
    pub quotas: SmallVec<[Quota<'a>; 2]>,
    /// The most restrictive of them; none if no enforced limit matched.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub binding: Option<Bound<'a>>,
    /// After a denial, the entries whose limit denies, secrets as fingerprints; none where they are not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scope: Option<String>,
}

/// A limit that applies to a request: a quota policy, in the terms of the IETF draft.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Quota<'a> {
    /// The name: printable ASCII, unique among the quotas of a request.
    pub name: Cow<'a, str>,
    /// Hits per window, or a larger burst; for concurrency limits, requests in flight.
    pub limit: u64,
    /// The window; none if it is not known, and for concurrency limits, which have none.
    #[serde(
        rename = "window_us",
        serialize_with = "window_in_micros",
        skip_serializing_if = "Option::is_none"
    )]
    pub window: Option<Micros>,
    /// True if it limits requests in flight.
    #[serde(skip)]
    pub is_concurrency: bool,
}

/// The limit that is closest to denying a request, and its state.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Bound<'a> {
    /// The limit.
    pub quota: Quota<'a>,
    /// Its state. Clients may wait for `reset_after` or for `retry_after`.
    pub status: LimitStatus<'a>,
}

impl Bound<'_> {
    /// Hits left as HTTP clients are told them: 0 if the limit is over.
    #[must_use]
    pub const fn remaining(&self) -> u64 {
        match self.status.is_over {
            true => 0,
            false => self.status.remaining,
        }
    }

    /// The id of the limit's rule; `override` if the request brought the limit along.
    #[must_use]
    pub fn rule(&self) -> &str {
        self.status.rule.as_deref().unwrap_or(OVERRIDE)
    }

    /// Whole seconds to wait, at least 1, after a denial that a wait can end.
    #[must_use]
    pub fn retry_after_secs(&self) -> Option<u64> {
        let wait = self.status.retry_after?;
        Some(wait.as_secs_ceil().max(1))
    }
}

impl<'a> RequestStatus<'a> {
    /// The state after `decision`, taken `at` this time, of a request to which `policies` apply; without its scope.
    #[must_use]
    pub fn new(policies: &[Policy], decision: &'a Decision, at: Timestamp) -> Self {
        let rules = decision.snapshot().rules();
        let mut quotas: SmallVec<[Quota<'a>; 2]> = SmallVec::new();
        for policy in policies {
            let quota = Quota::new(policy, name(policy.source, &quotas, rules));
            quotas.push(quota);
        }
        let binding = decision.binding().zip(decision.limit_status());
        let binding = binding.map(|(binding, status)| {
            let same = |(policy, _): &(&Policy, &Quota<'a>)| {
                policy.source == binding.source
                    && (policy.ceiling, policy.window) == (binding.ceiling, binding.window)
            };
            let known = policies.iter().zip(&quotas).find(same);
            let quota = known.map(|(_, quota)| quota.clone());
            let quota = quota.unwrap_or_else(|| Quota::of(decision, binding));
            Bound { quota, status }
        });
        Self {
            allowed: decision.allowed(),
            degraded: decision.is_degraded(),
            at,
            quotas,
            binding,
            scope: None,
        }
    }

    /// The same after a `decision` on these `descriptors`, with its scope.
    #[must_use]
    pub fn of(
        policies: &[Policy],
        decision: &'a Decision,
        descriptors: RequestDescriptors<'_>,
        at: Timestamp,
    ) -> Self {
        let denied = (!decision.allowed()).then_some(descriptors);
        Self {
            scope: denied.and_then(|descriptors| scope(decision, descriptors)),
            ..Self::new(policies, decision, at)
        }
    }

    /// A copy without borrowed parts.
    #[must_use]
    pub fn into_owned(self) -> RequestStatus<'static> {
        RequestStatus {
            allowed: self.allowed,
            degraded: self.degraded,
            at: self.at,
            quotas: self.quotas.into_iter().map(Quota::into_owned).collect(),
            binding: self.binding.map(|bound| Bound {
                quota: bound.quota.into_owned(),
                status: bound.status.into_owned(),
            }),
            scope: self.scope,
        }
    }

    /// Turns an allowance into a denial, because the request cannot wait for its turn, which is
    /// `wait` away.
    pub fn deny_for(&mut self, wait: Duration) {
        self.allowed = false;
        if let Some(Bound { status, .. }) = &mut self.binding {
            status.is_over = true;
            status.reset_after = wait.into();
            status.retry_after = Some(status.reset_after);
        }
    }
}

impl Serialize for Bound<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let LimitStatus {
            rule: _,      // By `rule`, which has a word for none.
            limit: _,     // The policy tells it.
            remaining: _, // By `remaining`.
            reset_after,
            full_after: _, // No header tells it.
            retry_after,
            is_over: _, // `remaining` is 0.
            debt,
        } = &self.status;
        let mut fields = serializer.serialize_struct("Binding", 6)?;
        fields.serialize_field("policy", &self.quota)?;
        fields.serialize_field("rule", self.rule())?;
        fields.serialize_field("remaining", &self.remaining())?;
        if *debt > 0 {
            fields.serialize_field("debt", debt)?;
        }
        fields.serialize_field("reset_after_us", &reset_after.get())?;
        if let Some(wait) = retry_after {
            fields.serialize_field("retry_after_us", &wait.get())?;
        }
        fields.end()
    }
}

fn in_micros<S: Serializer>(at: &Timestamp, serializer: S) -> Result<S::Ok, S::Error> {
    at.as_micros().serialize(serializer)
}

fn listed<S: Serializer>(quotas: &[Quota<'_>], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(quotas)
}

#[expect(clippy::ref_option, reason = "serde's signature")]
fn window_in_micros<S: Serializer>(
    window: &Option<Micros>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    window.map(Micros::get).serialize(serializer)
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

    /// The quota of a limit that is not among the request's policies.
    fn of(decision: &'a Decision, binding: &Binding) -> Self {
        let rule = decision.rule(binding).map_or(OVERRIDE, |rule| &rule.id);
        Self {
            window: Some(binding.window),
            ..Self::named(rule, binding.ceiling)
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

/// The name of a limit that came with the request.
const OVERRIDE: &str = "override";

/// The name of a policy: the rule's name, or its id if another policy has that name.
fn name<'a>(source: LimitSource, taken: &[Quota<'_>], rules: &'a RuleSet) -> Cow<'a, str> {
    let (name, id) = match source {
        LimitSource::Override | LimitSource::Own(_) => (OVERRIDE, OVERRIDE),
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
