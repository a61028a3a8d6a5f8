//! Places in a file.

/// A range in the text: its start, and the number of characters that it covers on that line.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct Mark {
    /// Line number, from 1.
    pub(crate) line: u32,
    /// Column in characters, from 1.
    pub(crate) column: u32,
    /// In characters, at least 1.
    pub(crate) length: u32,
}

impl Mark {
    pub(crate) const START: Self = Self {
        line: 1,
        column: 1,
        length: 1,
    };
}

/// A value and its position.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct At<T> {
    pub(crate) value: T,
    pub(crate) mark: Mark,
}

impl<T> At<T> {
    /// Another value at the same position.
    pub(crate) fn map<U>(self, change: impl FnOnce(T) -> U) -> At<U> {
        At {
            value: change(self.value),
            mark: self.mark,
        }
    }
}

impl At<Box<str>> {
    /// The same text, borrowed.
    pub(crate) fn as_str(&self) -> At<&str> {
        At {
            value: &self.value,
            mark: self.mark,
        }
    }
}
