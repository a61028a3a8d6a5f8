//! A check that owns what it asks.

use ratekeeper_limiter::{Check, Descriptor, Override, Waiting};
use ratekeeper_rules::Entry;
use smallvec::SmallVec;

/// What is asked of a store that answers later: the check itself borrows from the request, which cannot be held.
#[derive(Debug)]
pub(crate) struct Question {
    domain: Box<str>,
    waiting: Waiting,
    /// Keys and values, of all descriptors one after the other.
    texts: Vec<(Box<str>, Box<str>)>,
    descriptors: SmallVec<[Asked; 4]>,
}

/// A descriptor, but for its entries.
#[derive(Debug)]
struct Asked {
    domain: Option<Box<str>>,
    /// Where its entries end.
    end: usize,
    hits: i64,
    limit: Option<Override>,
}

impl Question {
    pub(crate) fn of(check: &Check<'_>) -> Self {
        let mut texts = Vec::new();
        let mut descriptors = SmallVec::new();
        for descriptor in check.descriptors {
            let entries = descriptor.entries.iter();
            texts.extend(entries.map(|entry| (entry.key.into(), entry.value.into())));
            descriptors.push(Asked {
                domain: descriptor.domain.map(Into::into),
                end: texts.len(),
                hits: descriptor.hits,
                limit: descriptor.limit,
            });
        }
        Self {
            domain: check.domain.into(),
            waiting: check.waiting,
            texts,
            descriptors,
        }
    }

    /// Gives `ask` the check.
    pub(crate) fn with<T>(&self, ask: impl FnOnce(&Check<'_>) -> T) -> T {
        let entries: SmallVec<[Entry<'_>; 8]> = self
            .texts
            .iter()
            .map(|(key, value)| Entry { key, value })
            .collect();
        let mut start = 0;
        let descriptors: SmallVec<[Descriptor<'_>; 4]> = self
            .descriptors
            .iter()
            .map(|asked| {
                let own = entries.get(start..asked.end).unwrap_or_default();
                start = asked.end;
                Descriptor {
                    domain: asked.domain.as_deref(),
                    entries: own,
                    hits: asked.hits,
                    limit: asked.limit,
                }
            })
            .collect();
        ask(&Check {
            domain: &self.domain,
            descriptors: &descriptors,
            waiting: self.waiting,
        })
    }
}
