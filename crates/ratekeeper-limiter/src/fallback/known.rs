//! What the store last said was left of each counter, of as many as there is room for.

use parking_lot::Mutex;
use ratekeeper_core::Timestamp;
use ratekeeper_store::CounterKey;

/// Counters that are remembered, a power of 2. 2.5 MiB of them.
const PLACES: usize = 1 << 16;

/// One place for each counter's name, taken by whoever came last: what is forgotten starts from
/// nothing, which refuses nobody.
#[derive(Debug)]
pub(super) struct Known(Box<[Mutex<Place>]>);

#[derive(Clone, Copy, Debug, Default)]
struct Place {
    /// The part of the name that does not say where it lies; 0 if the place is empty.
    tag: u64,
    said: Said,
    until: Timestamp,
}

/// What the store said of a counter.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Said {
    /// Hits left.
    pub(super) remaining: u64,
    /// When.
    pub(super) at: Timestamp,
}

impl Known {
    pub(super) fn new() -> Self {
        Self((0..PLACES).map(|_| Mutex::default()).collect())
    }

    /// From `until` on, `said` says nothing of the counter any more.
    pub(super) fn put(&self, key: CounterKey, said: Said, until: Timestamp) {
        *self.place(key).lock() = Place {
            tag: tag(key),
            said,
            until,
        };
    }

    /// What was last said of the counter, if that is known and still says something. It is then
    /// forgotten: a counter starts from it once.
    pub(super) fn take(&self, key: CounterKey, now: Timestamp) -> Option<Said> {
        let mut place = self.place(key).lock();
        if place.tag != tag(key) {
            return None;
        }
        let place = std::mem::take(&mut *place);
        (now < place.until).then_some(place.said)
    }

    #[allow(clippy::cast_possible_truncation, reason = "only the low bits count")]
    fn place(&self, key: CounterKey) -> &Mutex<Place> {
        &self.0[(key.identity ^ key.subject) as usize % PLACES]
    }
}

/// Not 0, and made of bits that the place is not made of.
fn tag(key: CounterKey) -> u64 {
    (key.identity.rotate_left(32) ^ key.subject) | 1
}
