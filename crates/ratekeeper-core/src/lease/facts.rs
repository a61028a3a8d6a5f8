//! The facts of a lease, as words.

use crate::Micros;

/// Words of a lease.
pub(super) const WORDS: usize = 5;

/// The facts of a lease.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Facts {
    /// The counter's name.
    pub key: (u64, u64),
    /// The limit under which it was granted: it is spent under the same one only.
    pub limit: u64,
    /// The time at which its last answer came, by the node's boot time: a check that read its clock before that is
    /// dated before the hits were held, perhaps in the window before, and must not spend them.
    pub from: Micros,
    /// Until when it may be spent, by the node's boot time.
    pub deadline: Micros,
}

impl Facts {
    pub(super) const fn to_words(self) -> [u64; WORDS] {
        let (subject, identity) = self.key;
        [
            subject,
            identity,
            self.limit,
            self.from.get(),
            self.deadline.get(),
        ]
    }

    pub(super) const fn from_words(
        [subject, identity, limit, from, deadline]: [u64; WORDS],
    ) -> Self {
        Self {
            key: (subject, identity),
            limit,
            from: Micros::new(from),
            deadline: Micros::new(deadline),
        }
    }
}
