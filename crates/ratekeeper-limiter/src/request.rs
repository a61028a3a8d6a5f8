//! The requests that a limiter decides.

use std::sync::Arc;

use ratekeeper_core::{Limit, MAX_COUNT};
use ratekeeper_rules::{Entry, FailureMode, Unit};
use smallvec::SmallVec;

use crate::{BudgetUse, CheckObserver, Waiting};

/// The most hits one descriptor may take or give back.
#[allow(clippy::cast_possible_wrap, reason = "2^53 - 1 fits")]
pub const MAX_HITS: i64 = MAX_COUNT as i64;

/// The most bytes that edges accept in the key or the value of one entry: more than a proxy that
/// bounds its headers ever sends.
pub const ENTRY_BYTES_MAX: usize = 64 << 10;

/// A request to be decided: a domain, and descriptors of the request, each with its entries.
///
/// Texts are borrowed, lists are not: up to 8 entries and 4 descriptors allocate nothing. It is large, so it is
/// filled where it stands, and passed by reference.
///
/// ```
/// use ratekeeper_limiter::Check;
///
/// let check = Check::new("api")
///     .descriptor([("api_key", "ada")])
///     .descriptor([("api_key", "ada"), ("endpoint", "POST /orders")])
///     .hits(2);
/// let entries: Vec<_> = check.descriptors().map(|descriptor| descriptor.entries.len()).collect();
/// assert_eq!(entries, [1, 2]);
/// ```
#[derive(Clone, Debug)]
pub struct Check<'a> {
    /// The namespace of rules, where a descriptor names no other; a domain without rules allows
    /// everything.
    pub domain: &'a str,
    /// The entries of all descriptors, one after the other.
    entries: SmallVec<[Entry<'a>; 8]>,
    descriptors: SmallVec<[DescriptorTerms<'a>; 4]>,
    /// The caller's ability to hold the request back until a leaky bucket lets it go.
    pub waiting: Waiting,
    /// The use of limits that are paid afterwards.
    pub budgets: BudgetUse,
    /// The observer of this check, for the few requests that are traced.
    pub observer: Option<Arc<dyn CheckObserver>>,
}

impl<'a> Check<'a> {
    /// A request without descriptors so far, of a caller that cannot wait.
    #[must_use]
    #[inline]
    pub fn new(domain: &'a str) -> Self {
        Self {
            domain,
            entries: SmallVec::new(),
            descriptors: SmallVec::new(),
            waiting: Waiting::Cannot,
            budgets: BudgetUse::Charge,
            observer: None,
        }
    }

    /// Adds a view of the request with these entries: who calls, or what is called. It costs one hit; the limits of all
    /// descriptors apply.
    #[must_use]
    #[inline]
    pub fn descriptor<E: Into<Entry<'a>>>(mut self, entries: impl IntoIterator<Item = E>) -> Self {
        self.push(entries);
        self
    }

    /// Sets the [cost](DescriptorTerms::hits) of the last descriptor. Without descriptors this has no effect.
    #[must_use]
    #[inline]
    pub fn hits(mut self, hits: i64) -> Self {
        if let Some(last) = self.last_mut() {
            last.hits = hits;
        }
        self
    }

    /// Adds a descriptor as [`Self::descriptor`] does, in place, and returns its terms to be changed.
    #[inline]
    pub fn push<E: Into<Entry<'a>>>(
        &mut self,
        entries: impl IntoIterator<Item = E>,
    ) -> &mut DescriptorTerms<'a> {
        self.entries.extend(entries.into_iter().map(Into::into));
        self.descriptors.push(DescriptorTerms {
            domain: None,
            hits: 1,
            limit: None,
            end: self.entries.len(),
        });
        let last = self.descriptors.len() - 1;
        &mut self.descriptors[last]
    }

    /// The terms of the last descriptor.
    #[inline]
    pub fn last_mut(&mut self) -> Option<&mut DescriptorTerms<'a>> {
        self.descriptors.last_mut()
    }

    /// The descriptors, in the order in which they were added.
    #[inline]
    #[must_use]
    pub fn descriptors(&self) -> RequestDescriptors<'_> {
        RequestDescriptors {
            domain: self.domain,
            terms: &self.descriptors,
            entries: &self.entries,
            done: 0,
        }
    }
}

/// The descriptors of a [`Check`], one after the other.
#[derive(Clone, Copy, Debug)]
pub struct RequestDescriptors<'a> {
    /// The domain of the check.
    pub domain: &'a str,
    terms: &'a [DescriptorTerms<'a>],
    /// The entries of all descriptors, those passed by included.
    entries: &'a [Entry<'a>],
    /// The number of entries passed by.
    done: usize,
}

impl<'a> Iterator for RequestDescriptors<'a> {
    type Item = Descriptor<'a>;

    #[inline]
    fn next(&mut self) -> Option<Descriptor<'a>> {
        let (terms, rest) = self.terms.split_first()?;
        let entries = &self.entries[self.done..terms.end];
        (self.terms, self.done) = (rest, terms.end);
        Some(Descriptor {
            domain: terms.domain.unwrap_or(self.domain),
            entries,
            terms,
        })
    }

    #[inline]
    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.terms.len(), Some(self.terms.len()))
    }
}

impl ExactSizeIterator for RequestDescriptors<'_> {}

/// One view of a request, as it is matched: who calls, or what is called.
#[derive(Clone, Copy, Debug)]
pub struct Descriptor<'a> {
    /// The namespace of its rules.
    pub domain: &'a str,
    /// The entries, matched in order.
    pub entries: &'a [Entry<'a>],
    /// Its cost, and the limit that it brings along.
    pub terms: &'a DescriptorTerms<'a>,
}

/// The terms of one descriptor of a [`Check`].
#[derive(Clone, Copy, Debug)]
pub struct DescriptorTerms<'a> {
    /// The namespace of its rules, if it differs from the check's: limits of several domains are then
    /// taken together or not at all.
    pub domain: Option<&'a str>,
    /// The cost in hits: 1 for most requests; 0 only peeks, a negative number gives back.
    /// Clamped to [`MAX_HITS`] either way.
    pub hits: i64,
    /// A limit that comes with the request; the rules are then not matched.
    pub limit: Option<BroughtLimit<'a>>,
    /// The number of entries up to its last.
    end: usize,
}

impl DescriptorTerms<'_> {
    /// The hits, no more than a counter can hold.
    pub(crate) fn clamped(&self) -> i64 {
        self.hits.clamp(-MAX_HITS, MAX_HITS)
    }
}

/// A limit that comes with a request.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum BroughtLimit<'a> {
    /// In place of the limits that the rules of a known domain have.
    Override(Override),
    /// In a namespace of its own, which no rule counts in. Its domain need not be one of the rules'.
    Own(&'a OwnLimit),
}

impl From<Override> for BroughtLimit<'_> {
    fn from(limit: Override) -> Self {
        Self::Override(limit)
    }
}

/// A limit that rules know nothing of.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct OwnLimit {
    /// The limit.
    pub limit: Limit,
    /// The answer when the store gives none.
    pub on_store_failure: FailureMode,
}

/// A limit of whole units that comes with a request, as Envoy has it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Override {
    /// Hits per unit, clamped to 2^53 - 1.
    pub quota: u64,
    /// The window.
    pub unit: Unit,
}
