//! The keys of one thread and second.

use super::TopKey;

/// Keys that are told apart.
pub(super) const PLACES: usize = 64;

/// New keys for each one that takes over a place once all are taken: naming a key costs more than counting it.
const NEW_KEYS: u32 = 8;

/// The Space-Saving algorithm.
#[derive(Debug, Default)]
pub(super) struct Sketch {
    /// As long as `keys`, and apart from them, since each call looks through all of them.
    hashes: Vec<u64>,
    keys: Vec<TopKey>,
    /// New keys without a place since the last that got one.
    waiting: u32,
    /// The sum of their weights.
    waiting_weight: u64,
}

impl Sketch {
    /// Counts a key, which `name` makes if it has no place yet.
    pub(super) fn add(&mut self, hash: u64, weight: u64, name: impl FnOnce() -> TopKey) {
        if let Some(place) = self.hashes.iter().position(|known| *known == hash) {
            self.keys[place].count += weight;
            return;
        }
        if self.keys.len() < PLACES {
            self.hashes.push(hash);
            self.keys.push(TopKey {
                count: weight,
                ..name()
            });
            return;
        }
        self.waiting += 1;
        self.waiting_weight += weight;
        if self.waiting < NEW_KEYS {
            return;
        }
        let least = (0..self.keys.len()).min_by_key(|place| self.keys[*place].count);
        if let Some(place) = least {
            let before = self.keys[place].count;
            self.hashes[place] = hash;
            self.keys[place] = TopKey {
                count: before + self.waiting_weight,
                error: before + self.waiting_weight - weight,
                ..name()
            };
        }
        (self.waiting, self.waiting_weight) = (0, 0);
    }

    /// Takes all keys out.
    pub(super) fn drain(&mut self) -> impl Iterator<Item = TopKey> {
        self.hashes.clear();
        (self.waiting, self.waiting_weight) = (0, 0);
        std::mem::take(&mut self.keys).into_iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ratekeeper_core::Timestamp;

    fn key(number: u64) -> TopKey {
        TopKey {
            domain: "d".into(),
            rule: "d.r".into(),
            key: number.to_string().into(),
            subject: None,
            count: 0,
            error: 0,
            since: Timestamp::default(),
        }
    }

    #[test]
    fn few_keys_are_counted_exactly() {
        let mut sketch = Sketch::default();
        for round in 0..10 {
            for number in 0..PLACES as u64 {
                if number >= round {
                    sketch.add(number, 1, || key(number));
                }
            }
        }
        for (number, found) in (0..).zip(sketch.drain()) {
            assert_eq!(found.count, 10.min(number + 1), "{number}");
            assert_eq!(found.error, 0);
        }
        assert_eq!(sketch.drain().count(), 0);
    }

    #[test]
    fn one_new_key_in_eight_inherits_what_made_room_for_it() {
        let mut sketch = Sketch::default();
        for number in 0..PLACES as u64 {
            sketch.add(number, 5, || key(number));
        }
        for number in 100..107 {
            sketch.add(number, 3, || unreachable!("it waits"));
        }
        sketch.add(107, 2, || key(107));
        let keys: Vec<_> = sketch.drain().collect();
        let new = keys.iter().find(|found| &*found.key == "107");
        let new = new.expect("it has a place");
        // The five of the key that went, and what all eight weigh; two are its own.
        assert_eq!((new.count, new.error), (5 + 23, 5 + 21));
    }

    #[test]
    fn a_heavy_key_is_found_among_a_flood_of_others() {
        let mut sketch = Sketch::default();
        let mut named = 0;
        for number in 0..10_000 {
            sketch.add(number + 1, 1, || {
                named += 1;
                key(number + 1)
            });
            if number % 10 == 0 {
                sketch.add(0, 1, || key(0));
            }
        }
        assert!(named < 10_000 / 8 + 100, "{named} keys were named");
        let keys: Vec<_> = sketch.drain().collect();
        assert_eq!(keys.len(), PLACES);
        let heavy = keys.iter().find(|found| &*found.key == "0");
        let heavy = heavy.expect("the heavy key has a place");
        assert!(heavy.count >= 1_000, "{heavy:?}");
        assert!(heavy.count - heavy.error <= 1_000, "{heavy:?}");
        let total: u64 = keys.iter().map(|found| found.count).sum();
        assert!(total <= 11_000, "{total}: nothing is counted twice");
    }
}
