//! The descriptors of a request, with the texts that were made for them.

use std::borrow::Cow;

use ratekeeper_limiter::Check;
use smallvec::SmallVec;

/// The descriptors of a request, from which a check can borrow: a check owns no texts, and some values are in no
/// request as they are counted.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Described<'a> {
    /// The entries of all descriptors, one after the other: keys and values.
    entries: SmallVec<[(&'a str, Cow<'a, str>); 8]>,
    /// The end of each descriptor's entries.
    ends: SmallVec<[usize; 8]>,
}

impl<'a> Described<'a> {
    /// Returns true if the request has no descriptor.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// Adds the descriptors to `check`; each costs one hit.
    pub fn add_to<'q>(&'q self, check: &mut Check<'q>) {
        let mut start = 0;
        for end in &self.ends {
            let own = self.entries[start..*end].iter();
            check.push(own.map(|(key, value)| (*key, &**value)));
            start = *end;
        }
    }

    /// Adds a descriptor with these entries.
    pub(crate) fn push(&mut self, entries: impl IntoIterator<Item = (&'a str, Cow<'a, str>)>) {
        self.entries.extend(entries);
        self.ends.push(self.entries.len());
    }

    /// Adds a descriptor with these entries, unless one of them has no value.
    ///
    /// # Errors
    /// The first error among the values, even behind an entry that has none.
    pub fn push_if_whole<E>(
        &mut self,
        entries: impl IntoIterator<Item = (&'a str, Result<Option<Cow<'a, str>>, E>)>,
    ) -> Result<(), E> {
        let start = self.entries.len();
        let mut is_whole = true;
        for (key, value) in entries {
            match value? {
                Some(value) => self.entries.push((key, value)),
                None => is_whole = false,
            }
        }
        if is_whole {
            self.ends.push(self.entries.len());
        } else {
            self.entries.truncate(start);
        }
        Ok(())
    }
}
