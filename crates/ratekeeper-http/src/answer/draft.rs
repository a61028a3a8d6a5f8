//! The headers of draft-ietf-httpapi-ratelimit-headers, as structured fields (RFC 9651).

use ratekeeper_core::{Micros, Verdict};
use ratekeeper_limiter::{Binding, Decision, Policy, Source};
use ratekeeper_rules::RuleSet;
use sfv::{Integer, KeyRef, ListSerializer, StringRef};

/// The largest integer of a structured field (RFC 9651, section 3.3.1).
const INTEGER_MAX: u64 = 999_999_999_999_999;

/// `RateLimit-Policy` and `RateLimit` of draft-ietf-httpapi-ratelimit-headers: all of the
/// request's policies, and the state of the binding one. Empty if no enforced limit matched.
pub fn headers(
    policies: &[Policy],
    decision: &Decision,
) -> impl Iterator<Item = (&'static str, String)> {
    let names = names(policies, decision.snapshot().rules());
    let mut list = ListSerializer::new();
    for (policy, name) in policies.iter().zip(&names) {
        let item = list
            .bare_item(string(name))
            .parameter(key("q"), integer(policy.quota));
        // A window is whole seconds there; any other is left out rather than bent.
        let micros = policy.window.get();
        if micros >= 1_000_000 && micros.is_multiple_of(1_000_000) {
            let _ = item.parameter(key("w"), integer(micros / 1_000_000));
        }
    }
    let list = list.finish().map(|value| ("RateLimit-Policy", value));
    let state = decision.binding().and_then(|binding| {
        let same = |(policy, _): &(&Policy, &String)| {
            policy.source == binding.source
                && (policy.quota, policy.window) == (binding.quota, binding.window)
        };
        let (_, name) = policies.iter().zip(&names).find(same)?;
        Some(("RateLimit", state(name, binding)))
    });
    list.into_iter().chain(state)
}

/// What the policies are called: a rule by its name, by its id if another has taken that.
fn names(policies: &[Policy], rules: &RuleSet) -> Vec<String> {
    let mut names: Vec<String> = Vec::with_capacity(policies.len());
    for policy in policies {
        let (name, id) = match policy.source {
            Source::Override => ("override", "override"),
            Source::Rule(index) => {
                let rule = rules.rule(index);
                (rule.name.as_deref().unwrap_or(&rule.id), &*rule.id)
            }
        };
        let mut name = shown(name);
        if names.contains(&name) {
            name = shown(id);
        }
        // Of several limits that a request brings along none has an id.
        if names.contains(&name) {
            name = format!("{name}-{}", names.len());
        }
        names.push(name);
    }
    names
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
            // What encodes is encoded itself, so that two names stay two.
            b' '..=b'~' if byte != b'%' => shown.push(char::from(byte)),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_names_stay_two() {
        let names = ["\u{f6}", "%C3%B6", "%", "%25", "100 %", "a\"b"];
        let shown: Vec<_> = names.iter().map(|name| shown(name)).collect();
        assert_eq!(
            shown,
            ["%C3%B6", "%25C3%25B6", "%25", "%2525", "100 %25", "a\"b"]
        );
    }
}
