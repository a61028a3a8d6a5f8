//! The requests that a limiter decides.

use std::sync::Arc;

use ratekeeper_core::MAX_COUNT;
use ratekeeper_rules::{Entry, Unit};

use crate::{CheckObserver, Waiting};

/// The most hits one descriptor may take or give back.
#[allow(clippy::cast_possible_wrap, reason = "2^53 - 1 fits")]
pub const MAX_HITS: i64 = MAX_COUNT as i64;

/// The most bytes that edges accept in the key or the value of one entry: more than a proxy that
/// bounds its headers ever sends.
pub const ENTRY_BYTES_MAX: usize = 64 << 10;

/// A request to be decided.
#[derive(Clone, Copy, Debug)]
pub struct Check<'a> {
    /// The namespace of rules, where a descriptor names no other; a domain without rules allows
    /// everything.
    pub domain: &'a str,
    /// The views of the request; the limits of all of them apply.
    pub descriptors: &'a [Descriptor<'a>],
    /// The caller's ability to hold the request back until a leaky bucket lets it go.
    pub waiting: Waiting,
    /// The observer of this check, for the few requests that are traced.
    pub observer: Option<&'a Arc<dyn CheckObserver>>,
}

impl<'a> Check<'a> {
    /// A request of a caller that cannot wait.
    #[must_use]
    pub const fn new(domain: &'a str, descriptors: &'a [Descriptor<'a>]) -> Self {
        Self {
            domain,
            descriptors,
            waiting: Waiting::Cannot,
            observer: None,
        }
    }
}

/// One view of a request: who calls, or what is called.
#[derive(Clone, Copy, Debug)]
pub struct Descriptor<'a> {
    /// The namespace of its rules, if it differs from the check's: limits of several domains are then
    /// taken together or not at all.
    pub domain: Option<&'a str>,
    /// The entries, matched in order.
    pub entries: &'a [Entry<'a>],
    /// The cost in hits: 1 for most requests; 0 only peeks, a negative number gives back.
    /// Clamped to [`MAX_HITS`] either way.
    pub hits: i64,
    /// A limit that comes with the request; the rules are then not matched.
    pub limit: Option<Override>,
}

impl<'a> Descriptor<'a> {
    /// A descriptor that costs one hit.
    #[must_use]
    pub const fn new(entries: &'a [Entry<'a>]) -> Self {
        Self {
            domain: None,
            entries,
            hits: 1,
            limit: None,
        }
    }

    /// The namespace of its rules, in a check of `common`.
    #[must_use]
    pub fn domain_in(&self, common: &'a str) -> &'a str {
        self.domain.unwrap_or(common)
    }
}

/// The same descriptors at another cost.
pub(crate) fn recosted<'a>(
    descriptors: &[Descriptor<'a>],
    cost: impl Fn(i64) -> i64,
) -> Vec<Descriptor<'a>> {
    let mut descriptors = descriptors.to_vec();
    for descriptor in &mut descriptors {
        descriptor.hits = cost(descriptor.hits);
    }
    descriptors
}

/// A limit that comes with a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Override {
    /// Hits per unit, clamped to 2^53 - 1.
    pub quota: u64,
    /// The window.
    pub unit: Unit,
}
