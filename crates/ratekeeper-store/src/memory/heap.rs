//! Out-of-line states, and the budget that bounds them.

use std::sync::atomic::{AtomicUsize, Ordering};

use ratekeeper_core::{Heap, Limit};

/// Memory of an out-of-line state besides its words: its `Vec` in the slab (which may have
/// doubled), a free-list entry and the allocator's bookkeeping.
pub(super) const OVERHEAD_BYTES: usize = 80;

/// The memory of a state in bytes.
pub(super) fn bytes_of(heap: &Heap) -> usize {
    OVERHEAD_BYTES + heap.capacity() * size_of::<u64>()
}

/// The memory that all out-of-line states may take together. Shared by the shards, since a single
/// log may exceed an even share.
#[derive(Debug)]
pub(super) struct Budget {
    used: AtomicUsize,
    limit: usize,
}

impl Budget {
    pub(super) const fn new(limit: usize) -> Self {
        Self {
            used: AtomicUsize::new(0),
            limit,
        }
    }

    pub(super) const fn limit(&self) -> usize {
        self.limit
    }

    pub(super) fn used(&self) -> usize {
        self.used.load(Ordering::Relaxed)
    }

    /// Takes `bytes` if they are available. Relaxed: an independent count.
    pub(super) fn reserve(&self, bytes: usize) -> bool {
        let take = |used: usize| used.checked_add(bytes).filter(|used| *used <= self.limit);
        self.used
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, take)
            .is_ok()
    }

    pub(super) fn release(&self, bytes: usize) {
        if bytes > 0 {
            self.used.fetch_sub(bytes, Ordering::Relaxed);
        }
    }

    /// Accounts for a state that took `before` bytes and now takes `after`, for which `reserved`
    /// were taken.
    pub(super) fn settle(&self, before: usize, reserved: usize, after: usize) {
        let had = before + reserved;
        if after > had {
            self.used.fetch_add(after - had, Ordering::Relaxed);
        } else {
            self.release(had - after);
        }
    }
}

/// The out-of-line states of a shard, by index.
#[derive(Debug, Default)]
pub(super) struct Slab {
    states: Vec<Heap>,
    free: Vec<usize>,
}

impl Slab {
    pub(super) fn used(&self) -> usize {
        self.states.len() - self.free.len()
    }

    /// Stores `heap`; returns the word with its index.
    pub(super) fn insert(&mut self, heap: Heap) -> u64 {
        let index = match self.free.pop() {
            Some(index) => {
                self.states[index] = heap;
                index
            }
            None => {
                self.states.push(heap);
                self.states.len() - 1
            }
        };
        index as u64
    }

    pub(super) fn get(&self, word: u64) -> &[u64] {
        self.get_full(word).map_or(&[], Vec::as_slice)
    }

    pub(super) fn get_full(&self, word: u64) -> Option<&Heap> {
        self.states.get(usize::try_from(word).ok()?)
    }

    pub(super) fn get_full_mut(&mut self, word: u64) -> Option<&mut Heap> {
        self.states.get_mut(usize::try_from(word).ok()?)
    }

    /// The state, if it is one that no charge under `limit` makes larger any more.
    #[inline]
    pub(super) fn get_grown(&mut self, word: u64, limit: &Limit) -> Option<&mut Heap> {
        let heap = self.get_full_mut(word)?;
        let words_max = limit.heap_words();
        (words_max > 0 && heap.len() == words_max).then_some(heap)
    }

    /// Frees the state; returns the bytes that it took.
    pub(super) fn remove(&mut self, word: u64) -> usize {
        let Ok(index) = usize::try_from(word) else {
            return 0;
        };
        let Some(state) = self.states.get_mut(index) else {
            return 0;
        };
        let bytes = bytes_of(state);
        *state = Heap::new();
        self.free.push(index);
        bytes
    }
}
