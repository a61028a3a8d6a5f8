//! Permits and reservations by caller.

use ratekeeper_core::Micros;
use ratekeeper_store::{Once, Store, Until};

use crate::token::{Sealer, low};
use crate::{Check, Limiter};

/// The time for which an idempotency key is remembered unless something else sets it.
pub(super) const KEY_TTL: Micros = Micros::from_secs(300);

/// The permits and reservations of one caller, which no other caller can renew, release or
/// settle.
#[derive(Debug)]
pub struct CallerHolds<'a, S> {
    pub(super) limiter: &'a Limiter<S>,
    pub(super) name: &'a str,
}

impl<S: Store> Limiter<S> {
    /// The caller of this name, as the edge has authenticated it; empty for all unauthenticated
    /// callers.
    pub const fn caller<'a>(&'a self, name: &'a str) -> CallerHolds<'a, S> {
        CallerHolds {
            limiter: self,
            name,
        }
    }
}

impl<S: Store> CallerHolds<'_, S> {
    /// Makes `call` with `check` run once under `key`, which is remembered for `ttl`; requests of other `hits`, or of other
    /// descriptors whose hits are `fixed`, differ.
    pub(super) fn once(
        &self,
        call: &str,
        check: &Check<'_>,
        key: &str,
        ttl: Micros,
        (hits, fixed): (u64, &[bool]),
    ) -> Once {
        let sealer = self.limiter.sealer();
        let texts = [self.name, check.domain, key];
        Once {
            id: sealer.hash(call, &texts.map(str::as_bytes)),
            until: Until::After(ttl),
            content: content_of(&sealer, check, hits, fixed),
        }
    }
}

/// A hash of the request's content, which tells apart different requests under the same key.
fn content_of(sealer: &Sealer, check: &Check<'_>, hits: u64, fixed: &[bool]) -> u64 {
    let mut words = vec![hits.to_be_bytes()];
    let mut texts: Vec<&[u8]> = Vec::new();
    for descriptor in check.descriptors() {
        words.push((descriptor.entries.len() as u64).to_be_bytes());
        words.push(descriptor.terms.hits.to_be_bytes());
        // Also if there is none: a text that is left out could be told by the next one.
        texts.push(descriptor.terms.domain.unwrap_or_default().as_bytes());
        for entry in descriptor.entries {
            texts.extend([entry.key.as_bytes(), entry.value.as_bytes()]);
        }
    }
    let words = words.concat();
    texts.push(&words);
    let Some(last) = fixed.iter().rposition(|is_fixed| *is_fixed) else {
        return low(sealer.hash("content", &texts));
    };
    let marks: Vec<u8> = fixed[..=last].iter().copied().map(u8::from).collect();
    texts.push(&marks);
    low(sealer.hash("content with fixed hits", &texts))
}
