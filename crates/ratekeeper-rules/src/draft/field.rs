//! A value of a draft with its place.

use crate::mark::{At, Mark};

/// A key of a draft: the places of the key and of its value, and the value.
///
/// A value that is wrong has a place and is [`None`]: that has been reported.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Field<T> {
    key: Option<Mark>,
    mark: Option<Mark>,
    value: Option<T>,
}

impl<T> Default for Field<T> {
    fn default() -> Self {
        Self {
            key: None,
            mark: None,
            value: None,
        }
    }
}

impl<T> Field<T> {
    /// A key at `key`, whose value stands at `mark` unless it is null.
    pub(crate) const fn written(key: Mark, mark: Option<Mark>, value: Option<T>) -> Self {
        Self {
            key: Some(key),
            mark,
            value,
        }
    }

    /// The position of the key.
    pub(crate) const fn key(&self) -> Option<Mark> {
        self.key
    }

    /// The position of the value, unless it is null.
    pub(crate) const fn mark(&self) -> Option<Mark> {
        self.mark
    }

    /// Returns true if there is a value, right or wrong.
    pub(crate) const fn is_set(&self) -> bool {
        self.mark.is_some()
    }

    /// The value, if it is there and right.
    pub(crate) const fn get(&self) -> Option<&T> {
        self.value.as_ref()
    }

    pub(super) const fn is_wrong(&self) -> bool {
        self.is_set() && self.value.is_none()
    }

    /// The value and its position.
    pub(crate) fn at(&self) -> Option<At<&T>> {
        let value = self.value.as_ref()?;
        let mark = self.mark?;
        Some(At { value, mark })
    }

    /// The value, taken out.
    pub(crate) fn take(&mut self) -> Option<T> {
        self.value.take()
    }

    /// The value and its position, taken out.
    pub(crate) fn take_at(&mut self) -> Option<At<T>> {
        let (value, mark) = (self.value.take()?, self.mark?);
        Some(At { value, mark })
    }
}

impl<T: Copy> Field<T> {
    /// The value, if it is there and right.
    pub(crate) fn copied(&self) -> Option<T> {
        self.value
    }
}

/// A value of a record, which has no place in a file.
impl<T> From<Option<T>> for Field<T> {
    fn from(value: Option<T>) -> Self {
        let mark = value.is_some().then_some(Mark::START);
        Self {
            key: mark,
            mark,
            value,
        }
    }
}

impl<T: PartialEq> Field<T> {
    /// The position of the key, if it has another value than `usual`.
    pub(crate) fn key_unless(&self, usual: &T) -> Option<Mark> {
        let is_other = self.is_set() && self.value.as_ref() != Some(usual);
        self.key.filter(|_| is_other)
    }
}

impl Field<Box<str>> {
    /// The text, unless it is empty.
    pub(crate) fn text(&self) -> Option<At<&str>> {
        let at = self.at()?;
        (!at.value.is_empty()).then(|| at.map(|text| &**text))
    }

    /// The text, taken out, unless it is empty.
    pub(crate) fn take_text(&mut self) -> Option<Box<str>> {
        self.take().filter(|text| !text.is_empty())
    }
}
