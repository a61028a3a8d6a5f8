//! Key and value joined by an underscore, without an allocation.

use memchr::memmem::Finder;

use crate::Entry;

/// `key_value`, kept as its two halves.
pub(crate) struct Composite<'a> {
    key: &'a [u8],
    value: &'a [u8],
}

impl<'a> Composite<'a> {
    pub(crate) const fn new(entry: &Entry<'a>) -> Self {
        Self {
            key: entry.key.as_bytes(),
            value: entry.value.as_bytes(),
        }
    }

    pub(super) const fn len(&self) -> usize {
        self.key.len() + 1 + self.value.len()
    }

    pub(crate) fn is(&self, pattern: &[u8]) -> bool {
        pattern.len() == self.len() && self.has_at(0, pattern)
    }

    /// Joins the halves in `buffer`; [`None`] if the buffer is too small.
    pub(super) fn write_to<'b>(&self, buffer: &'b mut [u8]) -> Option<&'b [u8]> {
        let joined = buffer.get_mut(..self.len())?;
        let (key, rest) = joined.split_at_mut(self.key.len());
        let (underscore, value) = rest.split_first_mut()?;
        key.copy_from_slice(self.key);
        *underscore = b'_';
        value.copy_from_slice(self.value);
        Some(joined)
    }

    /// Returns true if `part` stands at `offset`.
    pub(super) fn has_at(&self, offset: usize, part: &[u8]) -> bool {
        let from_key = self.key.get(offset..).unwrap_or_default();
        if part.len() <= from_key.len() {
            return from_key.starts_with(part);
        }
        let Some(part) = part.strip_prefix(from_key) else {
            return false;
        };
        let offset = offset + from_key.len() - self.key.len();
        let part = if offset == 0 {
            match part.split_first() {
                Some((b'_', rest)) => rest,
                Some(_) => return false,
                None => return true,
            }
        } else {
            part
        };
        self.value
            .get(offset.saturating_sub(1)..)
            .is_some_and(|value| value.starts_with(part))
    }

    /// Returns the first place at or after `from` where the needle of `finder` stands and ends by
    /// `end`. Takes time in proportion to the composite, whatever it holds: senders choose the
    /// values, and they may be long.
    pub(super) fn find(&self, finder: &Finder<'_>, from: usize, end: usize) -> Option<usize> {
        let part = finder.needle();
        let last = end.checked_sub(part.len())?;
        let in_key = self.key.get(from..end.min(self.key.len()));
        if let Some(at) = in_key.and_then(|key| finder.find(key)) {
            return Some(from + at);
        }
        // Matches that begin in the key and end in the value, or touch the underscore. There are at
        // most as many places to try as the part, or the key, has bytes.
        let value_at = self.key.len() + 1;
        let first = from.max(value_at.saturating_sub(part.len()));
        let mut across = first..value_at.min(last + 1);
        if let Some(at) = across.find(|&at| self.has_at(at, part)) {
            return Some(at);
        }
        let from = from.max(value_at);
        let in_value = self.value.get(from - value_at..end.checked_sub(value_at)?);
        in_value
            .and_then(|value| finder.find(value))
            .map(|at| from + at)
    }
}
