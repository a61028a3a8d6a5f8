//! The most denied keys, in a fixed amount of memory.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;

use ratekeeper_rules::secret;

/// The most bytes of a key that are kept: a client may send one of a megabyte.
const KEY_BYTES_MAX: usize = 512;

/// Room for a fingerprint and the mark before it.
const FINGERPRINT_BYTES_MAX: usize = 64;

/// The most frequent keys of a stream (Space-Saving).
///
/// Keeps [`TopKeys::CAPACITY`] counters. A key without one takes over the smallest, count included,
/// so a count is never too low, and too high by at most the count taken over. With up to that many
/// different keys every count is exact; beyond it, a key with more than 1 / capacity of all hits is
/// certain to be kept.
///
/// Source: Metwally, Agrawal, El Abbadi, "Efficient Computation of Frequent and Top-k
/// Elements in Data Streams" (ICDT 2005). The smallest is found by a heap.
#[derive(Debug, Default)]
pub(crate) struct TopKeys {
    /// The heap index of each key's counter.
    places: HashMap<Arc<str>, usize>,
    /// A binary heap, the smallest count first.
    heap: Vec<Counter>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
struct Counter {
    key: Arc<str>,
    count: u64,
    /// The most of the count that may belong to other keys.
    error: u64,
}

/// One of the most frequent keys.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct TopKey<'a> {
    pub(crate) key: &'a str,
    pub(crate) count: u64,
    pub(crate) error: u64,
}

impl TopKeys {
    /// The most keys counted at a time.
    pub(crate) const CAPACITY: usize = 1_024;

    /// Counts one hit of `key`. Allocates only for a key that has no counter yet, or that is too long.
    pub(crate) fn count(&mut self, key: &str) {
        let key = &*shortened(key);
        if let Some(&place) = self.places.get(key) {
            self.heap[place].count += 1;
            self.sink(place);
        } else if self.heap.len() < Self::CAPACITY {
            let place = self.heap.len();
            let key: Arc<str> = key.into();
            self.places.insert(Arc::clone(&key), place);
            self.heap.push(Counter {
                key,
                count: 1,
                error: 0,
            });
            self.rise(place);
        } else if let Some(smallest) = self.heap.first_mut() {
            self.places.remove(&smallest.key);
            smallest.error = smallest.count;
            smallest.count += 1;
            smallest.key = key.into();
            self.places.insert(Arc::clone(&smallest.key), 0);
            self.sink(0);
        }
    }

    /// The `most` keys with the highest counts, highest first, equal ones by name.
    pub(crate) fn top(&self, most: usize) -> Vec<TopKey<'_>> {
        let mut all: Vec<&Counter> = self.heap.iter().collect();
        all.sort_by(|a, b| b.count.cmp(&a.count).then_with(|| a.key.cmp(&b.key)));
        all.truncate(most);
        let top = |counter: &Counter| (counter.count, counter.error);
        all.into_iter()
            .map(|counter| {
                let (count, error) = top(counter);
                TopKey {
                    key: &counter.key,
                    count,
                    error,
                }
            })
            .collect()
    }

    /// Moves a counter that grew below smaller ones.
    fn sink(&mut self, mut place: usize) {
        loop {
            let left = 2 * place + 1;
            let Some(mut child) = self.heap.get(left) else {
                return;
            };
            let mut below = left;
            if let Some(right) = self.heap.get(left + 1)
                && right.count < child.count
            {
                (child, below) = (right, left + 1);
            }
            if child.count >= self.heap[place].count {
                return;
            }
            self.swap(place, below);
            place = below;
        }
    }

    /// Moves a new counter above larger ones.
    fn rise(&mut self, mut place: usize) {
        while place > 0 {
            let above = (place - 1) / 2;
            if self.heap[above].count <= self.heap[place].count {
                return;
            }
            self.swap(place, above);
            place = above;
        }
    }

    fn swap(&mut self, a: usize, b: usize) {
        self.heap.swap(a, b);
        for place in [a, b] {
            if let Some(kept) = self.places.get_mut(&self.heap[place].key) {
                *kept = place;
            }
        }
    }
}

/// `key`, or its start and the fingerprint of the whole.
fn shortened(key: &str) -> Cow<'_, str> {
    if key.len() <= KEY_BYTES_MAX {
        return Cow::Borrowed(key);
    }
    let start = &key[..key.floor_char_boundary(KEY_BYTES_MAX - FINGERPRINT_BYTES_MAX)];
    Cow::Owned(format!("{start}…{}", secret::fingerprint(key)))
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn exact_while_there_is_a_counter_for_each_key() {
        let mut keys = TopKeys::default();
        for (key, times) in [("b", 3), ("a", 3), ("c", 5), ("d", 1)] {
            (0..times).for_each(|_| keys.count(key));
        }
        let top: Vec<(&str, u64, u64)> = keys
            .top(3)
            .iter()
            .map(|top| (top.key, top.count, top.error))
            .collect();
        assert_eq!(top, [("c", 5, 0), ("a", 3, 0), ("b", 3, 0)]);
    }

    #[test]
    fn never_more_counters_than_its_capacity() {
        let mut keys = TopKeys::default();
        for number in 0..10 * TopKeys::CAPACITY {
            keys.count("heavy");
            keys.count(&number.to_string());
        }
        assert_eq!(keys.heap.len(), TopKeys::CAPACITY);
        assert_eq!(keys.places.len(), TopKeys::CAPACITY);
        let top = keys.top(1);
        assert_eq!(
            (top[0].key, top[0].count, top[0].error),
            ("heavy", 10_240, 0)
        );
    }

    #[test]
    fn a_long_key_is_kept_by_its_start_and_stays_apart_from_others() {
        let mut keys = TopKeys::default();
        let key = |end: &str| format!("user_agent={}{end}", "ä".repeat(500_000));
        for end in ["a", "b", "a"] {
            keys.count(&key(end));
        }
        let top = keys.top(3);
        let counts: Vec<u64> = top.iter().map(|top| top.count).collect();
        assert_eq!(counts, [2, 1]);
        for top in top {
            assert!(top.key.starts_with("user_agent=ää"), "{}", top.key);
            assert!(top.key.len() <= KEY_BYTES_MAX, "{}", top.key.len());
        }
        // One that just fits stays as it is.
        let whole = "x".repeat(KEY_BYTES_MAX);
        (0..3).for_each(|_| keys.count(&whole));
        assert_eq!(keys.top(1)[0].key, whole);
    }

    proptest! {
        /// The bounds of the paper hold, compared with a map that counts everything.
        #[test]
        fn counts_are_never_too_low_and_off_by_their_error_at_most(
            hits in prop::collection::vec(0_u32..3_000, 0..6_000),
        ) {
            let mut keys = TopKeys::default();
            let mut truth: HashMap<String, u64> = HashMap::new();
            for hit in &hits {
                let key = hit.to_string();
                keys.count(&key);
                *truth.entry(key).or_default() += 1;
            }
            for top in keys.top(TopKeys::CAPACITY) {
                let real = truth[top.key];
                prop_assert!(real <= top.count && top.count <= real + top.error);
            }
            for (key, place) in &keys.places {
                prop_assert_eq!(&keys.heap[*place].key, key);
            }
        }
    }
}
