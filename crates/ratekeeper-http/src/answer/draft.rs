//! The headers of draft-ietf-httpapi-ratelimit-headers, as structured fields (RFC 9651).

use sfv::{Integer, KeyRef, ListSerializer, StringRef};

use super::Standing;

/// The largest integer of a structured field (RFC 9651, section 3.3.1).
const INTEGER_MAX: u64 = 999_999_999_999_999;

/// The value of `RateLimit-Policy`: all of the request's policies. None if there are none.
pub(super) fn policy(standing: &Standing<'_>) -> Option<String> {
    let mut list = ListSerializer::new();
    for quota in &standing.quotas {
        let mut item = list
            .bare_item(string(&quota.name))
            .parameter(key("q"), integer(quota.limit));
        if quota.is_concurrency {
            item = item.parameter(key("qu"), StringRef::constant("concurrent-requests"));
        }
        // A window is whole seconds there; any other is left out rather than bent.
        let micros = quota.window.map_or(0, |window| window.get());
        if micros >= 1_000_000 && micros.is_multiple_of(1_000_000) {
            let _ = item.parameter(key("w"), integer(micros / 1_000_000));
        }
    }
    list.finish()
}

/// The value of `RateLimit`: the state of the binding policy, if it is among the request's.
pub(super) fn state(standing: &Standing<'_>) -> Option<String> {
    let binding = standing.binding.as_ref()?;
    standing
        .quotas
        .iter()
        .find(|quota| **quota == binding.quota)?;
    let mut list = ListSerializer::new();
    let _ = list
        .bare_item(string(&binding.quota.name))
        .parameter(key("r"), integer(binding.remaining))
        .parameter(key("t"), integer(binding.reset_after.as_secs_ceil()));
    list.finish()
}

fn integer(value: u64) -> Integer {
    let value = i64::try_from(value.min(INTEGER_MAX)).unwrap_or(i64::MAX);
    Integer::try_from(value).unwrap_or(Integer::MAX)
}

/// Names are printable ASCII, which is all that a string may hold.
fn string(text: &str) -> &StringRef {
    StringRef::from_str(text).unwrap_or_else(|_| StringRef::constant(""))
}

fn key(name: &'static str) -> &'static KeyRef {
    KeyRef::constant(name)
}
