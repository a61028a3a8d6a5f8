//! The state of one counter, as stores keep it.

/// What most counters fit in: four words, all zero when nothing has been counted.
/// Each algorithm's file says what it keeps in which word.
pub type Words = [u64; 4];

/// The state of a counter that outgrew [`Words`], or never fitted: timestamps of a log,
/// permits, many or large sub-windows. Empty when nothing has been counted.
pub type Heap = Vec<u64>;

/// Where a counter of some limit starts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Shape {
    /// In [`Words`]; a charge may ask for the [`Heap`] later ([`Spill`]).
    Words,
    /// In a [`Heap`] from the start.
    Heap,
}

/// The state of a counter, borrowed from the store that keeps it.
#[derive(Clone, Copy, Debug)]
pub enum StateRef<'a> {
    /// Kept in line.
    Words(&'a Words),
    /// Kept out of line.
    Heap(&'a [u64]),
}

/// The state of a counter, to be changed in place.
#[derive(Debug)]
pub enum StateMut<'a> {
    /// Kept in line.
    Words(&'a mut Words),
    /// Kept out of line.
    Heap(&'a mut Heap),
}

/// The charge does not fit the counter's [`Words`]: nothing was changed. Put
/// [`Limit::spill`](crate::Limit::spill) of the words on the heap and charge that.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Spill;

/// A counter's state with an owner: what tests, models and small embedders use.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum State {
    /// In line.
    Words(Words),
    /// Out of line.
    Heap(Heap),
}

impl State {
    /// A counter that has counted nothing.
    #[must_use]
    pub const fn new(shape: Shape) -> Self {
        match shape {
            Shape::Words => Self::Words([0; 4]),
            Shape::Heap => Self::Heap(Vec::new()),
        }
    }

    /// The state, to look at.
    #[must_use]
    pub fn as_ref(&self) -> StateRef<'_> {
        match self {
            Self::Words(words) => StateRef::Words(words),
            Self::Heap(heap) => StateRef::Heap(heap),
        }
    }

    /// The state, to change.
    #[must_use]
    pub fn as_mut(&mut self) -> StateMut<'_> {
        match self {
            Self::Words(words) => StateMut::Words(words),
            Self::Heap(heap) => StateMut::Heap(heap),
        }
    }
}
