//! The keys of the last minute, or hour.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use ratekeeper_core::Timestamp;

use super::TopKey;

/// The slots of a ring besides the open one.
const SLOTS: usize = 12;

/// Keys that a slot keeps when it is closed. An open one keeps at most twice as many.
const KEYS_MAX: usize = 128;

/// Slots of equal length; the oldest goes when a new one is opened.
#[derive(Debug)]
pub(super) struct Ring {
    seconds: u32,
    /// Seconds that the open slot has seen.
    seen: u32,
    open: Slot,
    closed: VecDeque<Slot>,
}

/// A rule and a key.
type Name = (Arc<str>, Arc<str>);

#[derive(Debug, Default)]
struct Slot {
    keys: HashMap<Name, TopKey>,
    /// The most that was counted of any key that had to go.
    dropped: u64,
}

impl Slot {
    /// Counts a key, which other slots have had since `before` if it is new here.
    fn add(&mut self, key: &TopKey, before: impl FnOnce(&Name) -> Option<Timestamp>) {
        let dropped = self.dropped;
        let name = (key.rule.clone(), key.key.clone());
        let own = match self.keys.entry(name) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(new) => {
                let since = before(new.key()).unwrap_or(key.since);
                new.insert(TopKey {
                    count: 0,
                    // It may have been here before, and gone.
                    error: dropped,
                    since,
                    ..key.clone()
                })
            }
        };
        own.count += key.count;
        own.error += key.error;
        if self.keys.len() >= 2 * KEYS_MAX {
            self.shrink();
        }
    }

    fn shrink(&mut self) {
        if self.keys.len() <= KEYS_MAX {
            return;
        }
        let mut counts: Vec<_> = self.keys.values().map(|key| key.count).collect();
        counts.sort_unstable_by_key(|count| std::cmp::Reverse(*count));
        let gone = counts[KEYS_MAX];
        // Of keys with as many as the largest that goes, some may stay.
        let mut room = KEYS_MAX - counts.partition_point(|count| *count > gone);
        self.keys.retain(|_, key| {
            let is_at_edge = key.count == gone && room > 0;
            room -= usize::from(is_at_edge);
            key.count > gone || is_at_edge
        });
        self.dropped = self.dropped.max(gone);
    }
}

impl Ring {
    /// A ring of slots that are `seconds` long.
    pub(super) fn new(seconds: u32) -> Self {
        Self {
            seconds,
            seen: 0,
            open: Slot::default(),
            closed: VecDeque::with_capacity(SLOTS + 1),
        }
    }

    pub(super) fn add(&mut self, key: &TopKey) {
        let closed = &self.closed;
        self.open.add(key, |name| {
            let known = closed.iter().rev().find_map(|slot| slot.keys.get(name));
            known.map(|known| known.since)
        });
    }

    /// A second has passed.
    pub(super) fn tick(&mut self) {
        self.seen += 1;
        if self.seen < self.seconds {
            return;
        }
        self.seen = 0;
        let mut closed = std::mem::take(&mut self.open);
        closed.shrink();
        self.closed.push_back(closed);
        if self.closed.len() > SLOTS {
            self.closed.pop_front();
        }
    }

    /// The most that a key may have been counted that is not among them.
    pub(super) fn dropped(&self) -> u64 {
        let slots = self.closed.iter().chain([&self.open]);
        slots.map(|slot| slot.dropped).sum()
    }

    /// All keys, the largest count first.
    pub(super) fn sum(&self) -> Vec<TopKey> {
        let mut sums: HashMap<(&str, &str), TopKey> = HashMap::new();
        let slots = || self.closed.iter().chain([&self.open]);
        for key in slots().flat_map(|slot| slot.keys.values()) {
            let sum = sums.entry((&key.rule, &key.key)).or_insert_with(|| TopKey {
                count: 0,
                error: 0,
                ..key.clone()
            });
            sum.count += key.count;
            sum.error += key.error;
            sum.since = sum.since.min(key.since);
        }
        // Slots that do not have the key may have dropped it.
        for slot in slots().filter(|slot| slot.dropped > 0) {
            for (_, key) in sums
                .iter_mut()
                .filter(|(_, key)| !slot.keys.contains_key(&(key.rule.clone(), key.key.clone())))
            {
                key.error += slot.dropped;
            }
        }
        let mut keys: Vec<_> = sums.into_values().collect();
        keys.sort_unstable_by(|a, b| (b.count, &a.rule, &a.key).cmp(&(a.count, &b.rule, &b.key)));
        keys
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(name: &str, count: u64) -> TopKey {
        TopKey {
            domain: "d".into(),
            rule: "d.r".into(),
            key: name.into(),
            subject: None,
            count,
            error: 0,
            since: Timestamp::from_secs(0),
        }
    }

    /// The key, counted once in the second that ends at `second`.
    fn at(name: &str, second: u64) -> TopKey {
        TopKey {
            since: Timestamp::from_secs(second),
            ..key(name, 1)
        }
    }

    #[test]
    fn keys_are_forgotten_after_the_last_slot() {
        let mut ring = Ring::new(5);
        ring.add(&key("a", 3));
        for second in 0..65 {
            assert_eq!(ring.sum().len(), 1, "after {second} s");
            ring.tick();
        }
        assert_eq!(ring.sum(), []);
    }

    #[test]
    fn a_key_begins_when_it_was_first_counted_without_a_gap_of_a_window() {
        let mut ring = Ring::new(5);
        let since = |ring: &Ring| ring.sum()[0].since;
        for second in 100..1_000 {
            // Now and then is enough, over many slots.
            if second % 30 == 10 {
                ring.add(&at("a", second));
                assert_eq!(since(&ring), Timestamp::from_secs(100), "at {second}");
            }
            ring.tick();
        }
        (0..65).for_each(|_| ring.tick());
        assert_eq!(ring.sum(), []);
        ring.add(&at("a", 1_065));
        assert_eq!(since(&ring), Timestamp::from_secs(1_065));
    }

    #[test]
    fn counts_of_slots_add_up_and_the_largest_is_first() {
        let mut ring = Ring::new(1);
        for count in [1, 2, 3] {
            ring.add(&key("a", count));
            ring.add(&key("b", 4 * count));
            ring.tick();
        }
        let told: Vec<_> = ring.sum().iter().map(|key| key.count).collect();
        assert_eq!(told, [24, 6]);
    }

    #[test]
    fn errors_of_a_key_add_up_whatever_slots_they_are_of() {
        let mut ring = Ring::new(1);
        let unsure = |count, error| TopKey {
            error,
            ..key("a", count)
        };
        for (count, error) in [(5, 1), (7, 2)] {
            ring.add(&unsure(count, error));
            ring.add(&unsure(count, error));
            ring.tick();
        }
        let told: Vec<_> = ring.sum().iter().map(|it| (it.count, it.error)).collect();
        assert_eq!(told, [(24, 6)]);
        assert_eq!(ring.dropped(), 0);
    }

    #[test]
    fn a_slot_keeps_the_largest_and_tells_the_largest_of_the_others() {
        let mut ring = Ring::new(1);
        let most = 2 * KEYS_MAX as u64 - 1;
        for count in 1..=most {
            ring.add(&key(&count.to_string(), count));
        }
        assert_eq!(ring.dropped(), 0, "there is room for all in an open slot");
        ring.tick();
        let kept: Vec<_> = ring.sum().iter().map(|key| key.count).collect();
        let least = most - KEYS_MAX as u64 + 1;
        assert_eq!(kept, (least..=most).rev().collect::<Vec<_>>());
        assert_eq!(ring.dropped(), least - 1);
    }

    #[test]
    fn a_slot_is_bounded_and_says_what_it_dropped() {
        let mut ring = Ring::new(1);
        ring.add(&key("heavy", 50));
        for number in 0..10_000 {
            ring.add(&key(&number.to_string(), 1));
            assert!(ring.open.keys.len() < 2 * KEYS_MAX);
        }
        ring.tick();
        let keys = ring.sum();
        assert_eq!(keys.len(), KEYS_MAX);
        assert_eq!((&*keys[0].key, keys[0].count), ("heavy", 50));
        assert_eq!(keys[0].error, 0, "it never had to go");
        // Those that came after the first had to go may have been there before.
        assert!(keys.iter().any(|key| key.error >= 1));
        ring.add(&key("late", 9));
        let late = ring.sum().into_iter().find(|key| &*key.key == "late");
        assert_eq!(late.expect("it is there").error, 1);
        assert_eq!(ring.dropped(), 1);
    }
}
