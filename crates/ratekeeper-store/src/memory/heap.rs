//! States that do not fit their slot, and the budget that bounds them.

use std::sync::atomic::{AtomicUsize, Ordering};

use ratekeeper_core::Heap;

/// What an out-of-line state costs besides its words: its `Vec` in the slab (which may have
/// doubled), a free-list entry and the allocator's own bookkeeping.
pub(super) const OVERHEAD_BYTES: usize = 80;

/// Bytes that a state costs.
pub(super) fn bytes_of(heap: &Heap) -> usize {
    OVERHEAD_BYTES + heap.capacity() * size_of::<u64>()
}

/// Bytes that all the out-of-line states may take together. Shared by the shards, since a
/// single log may be larger than a shard's part would be.
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

    /// Takes `bytes` if they are left. Relaxed: it is a count and orders nothing else.
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

    /// A state that cost `before` costs `after` now, and `reserved` was taken for it.
    pub(super) fn settle(&self, before: usize, reserved: usize, after: usize) {
        let had = before + reserved;
        if after > had {
            self.used.fetch_add(after - had, Ordering::Relaxed);
        } else {
            self.release(had - after);
        }
    }
}

/// The out-of-line states of a shard, each known by its index.
#[derive(Debug, Default)]
pub(super) struct Slab {
    states: Vec<Heap>,
    free: Vec<usize>,
}

impl Slab {
    pub(super) fn used(&self) -> usize {
        self.states.len() - self.free.len()
    }

    /// Keeps `heap`; the word says where.
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

    /// Frees the state; how many bytes it cost.
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
