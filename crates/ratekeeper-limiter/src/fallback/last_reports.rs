//! The remaining hits that the store last reported, for as many counters as there is room for.

use parking_lot::Mutex;
use ratekeeper_core::Timestamp;
use ratekeeper_store::CounterKey;

/// The number of counters remembered, a power of 2; they take 3 MiB.
const PLACES: usize = 1 << 16;

/// The last report on each counter. Counters share places, and the latest takes the place; a
/// forgotten counter starts from nothing, which denies no caller.
#[derive(Debug)]
pub(super) struct LastReports(Box<[Mutex<Slot>]>);

#[derive(Clone, Copy, Debug, Default)]
struct Slot {
    /// The part of the name that does not determine its place; 0 if the place is empty.
    tag: u64,
    said: Report,
    until: Timestamp,
}

/// The store's last report on a counter.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Report {
    /// Hits left.
    pub(super) remaining: u64,
    /// Hits below zero of a post-paid bucket.
    pub(super) debt: u64,
    /// The time of the report.
    pub(super) at: Timestamp,
}

impl LastReports {
    pub(super) fn new() -> Self {
        Self((0..PLACES).map(|_| Mutex::default()).collect())
    }

    /// Remembers `said`, which is valid until `until`.
    pub(super) fn put(&self, key: CounterKey, said: Report, until: Timestamp) {
        *self.place(key).lock() = Slot {
            tag: tag(key),
            said,
            until,
        };
    }

    /// Takes the last report on the counter, if it is known and still valid: a counter starts from it
    /// only once.
    pub(super) fn take(&self, key: CounterKey, now: Timestamp) -> Option<Report> {
        let mut place = self.place(key).lock();
        if place.tag != tag(key) {
            return None;
        }
        let place = std::mem::take(&mut *place);
        (now < place.until).then_some(place.said)
    }

    #[allow(clippy::cast_possible_truncation, reason = "only the low bits count")]
    fn place(&self, key: CounterKey) -> &Mutex<Slot> {
        &self.0[(key.identity ^ key.subject) as usize % PLACES]
    }
}

/// A tag other than 0, made of bits that the place is not made of.
fn tag(key: CounterKey) -> u64 {
    (key.identity.rotate_left(32) ^ key.subject) | 1
}
