//! The state of one counter, in the form that stores keep.

/// The inline state of most counters: four words, all zero before the first hit. Each algorithm's
/// file documents its words.
pub type Words = [u64; 4];

/// The state of a counter that outgrew [`Words`], or never fitted: timestamps of a log, permits,
/// many or large sub-windows. Empty before the first hit.
pub type Heap = Vec<u64>;

/// The initial form of a limit's counters.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Shape {
    /// [`Words`]; a charge may require the [`Heap`] later ([`Spill`]).
    Words,
    /// A [`Heap`] from the start.
    Heap,
}

/// The state of a counter, borrowed from the store.
#[derive(Clone, Copy, Debug)]
pub enum StateRef<'a> {
    /// Kept inline.
    Words(&'a Words),
    /// Kept out of line.
    Heap(&'a [u64]),
}

/// The state of a counter, to change in place.
#[derive(Debug)]
pub enum StateMut<'a> {
    /// Kept inline.
    Words(&'a mut Words),
    /// Kept out of line.
    Heap(&'a mut Heap),
}

impl StateMut<'_> {
    /// The state to read.
    #[inline]
    #[must_use]
    pub fn as_ref(&self) -> StateRef<'_> {
        match self {
            Self::Words(words) => StateRef::Words(words),
            Self::Heap(heap) => StateRef::Heap(heap),
        }
    }

    /// The same state, lent for one change.
    #[inline]
    #[must_use]
    pub fn reborrow(&mut self) -> StateMut<'_> {
        match self {
            Self::Words(words) => StateMut::Words(words),
            Self::Heap(heap) => StateMut::Heap(heap),
        }
    }
}

/// The charge does not fit the counter's [`Words`], and nothing was changed. Put
/// [`Limit::spill`](crate::Limit::spill) of the words on the heap and charge that.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Spill;

/// An owned state, for tests, models and small embedders.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum State {
    /// Inline.
    Words(Words),
    /// Out of line.
    Heap(Heap),
}

impl State {
    /// The state of a counter without hits.
    #[must_use]
    pub const fn new(shape: Shape) -> Self {
        match shape {
            Shape::Words => Self::Words([0; 4]),
            Shape::Heap => Self::Heap(Vec::new()),
        }
    }

    /// The state to read.
    #[must_use]
    pub fn as_ref(&self) -> StateRef<'_> {
        match self {
            Self::Words(words) => StateRef::Words(words),
            Self::Heap(heap) => StateRef::Heap(heap),
        }
    }

    /// The state to change.
    #[must_use]
    pub fn as_mut(&mut self) -> StateMut<'_> {
        match self {
            Self::Words(words) => StateMut::Words(words),
            Self::Heap(heap) => StateMut::Heap(heap),
        }
    }
}
