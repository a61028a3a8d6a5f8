//! The facts of a lease, as words.

use super::Place;
use crate::{Micros, Timestamp, equal_count};

/// Words of a lease.
pub(super) const WORDS: usize = 13;

/// The facts of a lease.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Facts {
    /// The counter's name.
    pub key: (u64, u64),
    /// The limit under which it was granted: it is spent under the same one only.
    pub limit: u64,
    /// The grant's id.
    pub id: u128,
    /// The time at which its answer came, by the node's boot time: a check that read its clock before that is
    /// dated before the grant, perhaps in the window before, and must not spend it.
    pub from: Micros,
    /// Until when it may be spent, by the node's boot time.
    pub deadline: Micros,
    /// The time of the grant, by the store's clock.
    pub granted_at: Timestamp,
    /// Hits that were granted.
    pub granted: u64,
    /// The place of their charge.
    pub place: Place,
}

impl Facts {
    #[allow(clippy::cast_possible_truncation, reason = "the two halves of the id")]
    pub(super) fn to_words(self) -> [u64; WORDS] {
        let kind = match self.place {
            Place::Bucket => 0,
            Place::Window(_) => 1,
            Place::Part(_) => 2,
            Place::Groups(_) => 3,
        };
        let [first, second, third] = self.place.numbers();
        [
            self.key.0,
            self.key.1,
            self.limit,
            self.id as u64,
            (self.id >> 64) as u64,
            self.from.get(),
            self.deadline.get(),
            self.granted_at.as_micros(),
            self.granted,
            kind,
            first,
            second,
            third,
        ]
    }

    pub(super) fn from_words(words: [u64; WORDS]) -> Self {
        let [
            first_key,
            second_key,
            limit,
            low,
            high,
            from,
            deadline,
            granted_at,
            granted,
            kind,
            first,
            second,
            third,
        ] = words;
        Self {
            key: (first_key, second_key),
            limit,
            id: u128::from(high) << 64 | u128::from(low),
            from: Micros::new(from),
            deadline: Micros::new(deadline),
            granted_at: Timestamp::from_micros(granted_at),
            granted,
            place: match kind {
                1 => Place::Window(Timestamp::from_micros(first)),
                2 => Place::Part(first),
                3 => Place::Groups(equal_count::GrantedGroups::from_words([
                    first, second, third,
                ])),
                _ => Place::Bucket,
            },
        }
    }
}
