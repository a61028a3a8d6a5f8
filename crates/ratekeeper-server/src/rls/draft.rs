//! The headers of draft-ietf-httpapi-ratelimit-headers, as structured fields (RFC 9651).

use ratekeeper_core::{Algorithm, Limit, Micros, Verdict};
use ratekeeper_limiter::{Binding, Decision, Source};
use ratekeeper_proto::envoy::config::core::v3::HeaderValue;
use ratekeeper_proto::envoy::extensions::common::ratelimit::v3::RateLimitDescriptor;
use ratekeeper_proto::envoy::service::ratelimit::v3::RateLimitRequest;
use ratekeeper_rules::{Entry, Evaluation, RuleIndex, RuleSet};
use sfv::{Integer, KeyRef, ListSerializer, StringRef};
use smallvec::SmallVec;

use super::headers::header;

/// The largest integer of a structured field (RFC 9651, section 3.3.1).
const INTEGER_MAX: u64 = 999_999_999_999_999;

/// `RateLimit-Policy` and `RateLimit` of draft-ietf-httpapi-ratelimit-headers: all of the
/// request's policies, and the state of the binding one. Empty if no enforced limit matched.
pub(super) fn headers(
    request: &RateLimitRequest,
    decision: &Decision,
) -> impl Iterator<Item = HeaderValue> {
    let policies = policies(request, decision);
    let mut list = ListSerializer::new();
    for policy in &policies {
        let item = list
            .bare_item(string(&policy.name))
            .parameter(key("q"), integer(policy.quota));
        // A window is whole seconds there; any other is left out rather than bent.
        let micros = policy.window.get();
        if micros >= 1_000_000 && micros.is_multiple_of(1_000_000) {
            let _ = item.parameter(key("w"), integer(micros / 1_000_000));
        }
    }
    let list = list.finish().map(|value| header("RateLimit-Policy", value));
    let state = decision.binding().and_then(|binding| {
        let policy = policies
            .iter()
            .find(|policy| policy.source == binding.source)?;
        Some(header("RateLimit", state(&policy.name, binding)))
    });
    list.into_iter().chain(state)
}

/// A limit that clients are told of.
struct Policy {
    source: Source,
    /// Told from those of the request's other policies.
    name: String,
    quota: u64,
    window: Micros,
}

/// The enforced limits of all descriptors, each once.
fn policies(request: &RateLimitRequest, decision: &Decision) -> Vec<Policy> {
    let mut policies: Vec<Policy> = Vec::new();
    let mut add = |policy: Policy, id: &str| {
        if policies.iter().any(|other| other.source == policy.source) {
            return;
        }
        let is_taken = policies.iter().any(|other| other.name == policy.name);
        let name = if is_taken { shown(id) } else { policy.name };
        policies.push(Policy { name, ..policy });
    };
    let rules = decision.snapshot().rules();
    for (descriptor, status) in request.descriptors.iter().zip(decision.statuses()) {
        let Some(binding) = status.binding.filter(|binding| !binding.shadow) else {
            continue;
        };
        if binding.source == Source::Override {
            let Binding {
                source,
                quota,
                window,
                ..
            } = binding;
            let name = "override".to_owned();
            add(
                Policy {
                    source,
                    name,
                    quota,
                    window,
                },
                "override",
            );
            continue;
        }
        for index in applying(rules, &request.domain, descriptor) {
            let rule = rules.rule(index);
            if let Some(limit) = rule.limited().filter(|_| !rule.shadow) {
                let policy = Policy {
                    source: Source::Rule(index),
                    name: shown(rule.name.as_deref().unwrap_or(&rule.id)),
                    quota: limit.quota(),
                    window: limit.window(),
                };
                add(policy, &rule.id);
            }
        }
    }
    policies
}

/// The rules whose limits count for a descriptor.
fn applying(rules: &RuleSet, domain: &str, descriptor: &RateLimitDescriptor) -> Vec<RuleIndex> {
    let Some(domain) = rules.domain(domain) else {
        return Vec::new();
    };
    let entries = descriptor.entries.iter().map(|entry| Entry {
        key: &entry.key,
        value: &entry.value,
    });
    let walk = domain.walk(&entries.collect::<SmallVec<[_; 8]>>());
    let visits = match domain.evaluation() {
        Evaluation::Leaf => walk.leaf().into_iter().collect::<SmallVec<[_; 8]>>(),
        Evaluation::Path => walk.iter().copied().collect(),
    };
    let indexes = visits.iter().flat_map(|visit| visit.node.rules());
    let counts = |index: &&RuleIndex| {
        let rule = rules.rule(**index);
        let is_concurrency = |limit: &Limit| limit.algorithm() == Algorithm::Concurrency;
        rule.enabled && !rule.limited().is_some_and(is_concurrency)
    };
    indexes.filter(counts).copied().collect()
}

fn state(name: &str, binding: &Binding) -> String {
    let answered = &binding.answered;
    let wait: Micros = match answered.verdict {
        Verdict::Later => answered.retry_after,
        Verdict::Fits | Verdict::Never => answered.reset_after,
    };
    let remaining = if answered.fits() {
        answered.remaining
    } else {
        0
    };
    let mut list = ListSerializer::new();
    let _ = list
        .bare_item(string(name))
        .parameter(key("r"), integer(remaining))
        .parameter(key("t"), integer(wait.as_secs_ceil()));
    list.finish().unwrap_or_default()
}

/// A name in the characters that a structured field may hold.
fn shown(name: &str) -> String {
    let mut shown = String::with_capacity(name.len());
    for byte in name.bytes() {
        match byte {
            b' '..=b'~' => shown.push(char::from(byte)),
            // Percent-encoded, so that two names stay two.
            _ => shown.push_str(&format!("%{byte:02X}")),
        }
    }
    shown
}

fn integer(value: u64) -> Integer {
    let value = i64::try_from(value.min(INTEGER_MAX)).unwrap_or(i64::MAX);
    Integer::try_from(value).unwrap_or(Integer::MAX)
}

/// [`shown`] lets only printable ASCII through, which is all that a string may hold.
fn string(text: &str) -> &StringRef {
    StringRef::from_str(text).unwrap_or_else(|_| StringRef::constant(""))
}

fn key(name: &'static str) -> &'static KeyRef {
    KeyRef::constant(name)
}
