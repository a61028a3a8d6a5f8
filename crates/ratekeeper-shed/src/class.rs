//! Priority classes of requests.

/// The most priority classes that a configuration can have.
pub const CLASSES_MAX: usize = 8;

/// A priority class: requests of class 0 are shed first, those of the highest class last.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Class(u8);

impl Class {
    /// The class at `index`, the least important being 0; larger than the last becomes the last.
    #[must_use]
    #[expect(clippy::cast_possible_truncation, reason = "at most 8 classes")]
    pub const fn new(index: u8) -> Self {
        let last = CLASSES_MAX as u8 - 1;
        Self(if index > last { last } else { index })
    }

    /// The index of the class, below [`CLASSES_MAX`].
    #[must_use]
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// The number of classes in use: 1 to [`CLASSES_MAX`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ClassCount(u8);

impl ClassCount {
    /// `count` classes, brought into the range from 1 to [`CLASSES_MAX`].
    #[must_use]
    #[expect(clippy::cast_possible_truncation, reason = "at most 8 classes")]
    pub const fn new(count: usize) -> Self {
        Self(match count {
            0 => 1,
            count if count > CLASSES_MAX => CLASSES_MAX as u8,
            count => count as u8,
        })
    }

    /// The number.
    #[must_use]
    pub const fn get(self) -> usize {
        self.0 as usize
    }

    /// The most important class.
    #[must_use]
    pub const fn top(self) -> Class {
        Class(self.0 - 1)
    }

    /// Returns true if `class` is the most important one.
    #[must_use]
    pub const fn is_top(self, class: Class) -> bool {
        class.0 >= self.0 - 1
    }

    /// The number of classes above `class`.
    #[must_use]
    pub const fn above(self, class: Class) -> usize {
        (self.0 - 1).saturating_sub(class.0) as usize
    }
}

/// The part of a tenant's demand that a request belongs to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Share {
    /// Within the tenant's fair share.
    Within,
    /// Beyond it.
    Beyond,
}
