//! A hash key and its time of creation, by which nodes choose between two.

use ratekeeper_core::Timestamp;

use super::KeyBytes;

/// The length of a hash key alone.
const KEY_BYTES: usize = 16;

/// The beginning of what a later version writes: its number follows. Version 1 is told by its length.
const LATER: &[u8] = b"hash-key ";

/// A hash key, and the time it was made.
///
/// If two meet, the older one wins: most counters are named by it, and every node comes to the same
/// answer, whichever it saw first.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Minted {
    /// The time by the clock of the server it was made for; the epoch if none was recorded.
    pub(crate) at: Timestamp,
    pub(crate) secret: KeyBytes,
}

impl Minted {
    /// Makes one whose age is not known, which counts as older than all others.
    pub(crate) const fn undated(secret: KeyBytes) -> Self {
        Self {
            at: Timestamp::EPOCH,
            secret,
        }
    }

    /// Reads a stored value; [`None`] if it is no hash key.
    pub(crate) fn read(bytes: &[u8]) -> Option<Self> {
        let (secret, rest) = bytes.split_first_chunk::<KEY_BYTES>()?;
        if rest.is_empty() {
            return Some(Self::undated(*secret));
        }
        let at = u64::from_be_bytes(rest.try_into().ok()?);
        Some(Self {
            at: Timestamp::from_micros(at),
            secret: *secret,
        })
    }

    /// Returns true if a later version of Ratekeeper wrote the value, which must be left as it is.
    pub(crate) fn is_later(bytes: &[u8]) -> bool {
        Self::read(bytes).is_none() && bytes.starts_with(LATER)
    }

    /// The stored form: the hash key, then the time in microseconds, big-endian, if it is known.
    pub(crate) fn to_bytes(self) -> Vec<u8> {
        let mut bytes = self.secret.to_vec();
        if self.at != Timestamp::EPOCH {
            bytes.extend(self.at.as_micros().to_be_bytes());
        }
        bytes
    }

    /// Returns true if this one wins over `other`.
    pub(crate) fn prevails_over(&self, other: &Self) -> bool {
        // Of the same moment, the smaller one, so that no two nodes ever disagree.
        (self.at, self.secret) < (other.at, other.secret)
    }
}

/// Without the hash key.
impl std::fmt::Debug for Minted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Minted")
            .field("at", &self.at)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn minted(at: u64, byte: u8) -> Minted {
        Minted {
            at: Timestamp::from_micros(at),
            secret: [byte; 16],
        }
    }

    #[test]
    fn what_was_written_is_read_and_nothing_else_is() {
        for one in [minted(0, 1), minted(1, 2), minted(u64::MAX, 3)] {
            assert_eq!(Minted::read(&one.to_bytes()), Some(one));
        }
        for length in (0..40).filter(|length| ![16, 24].contains(length)) {
            assert_eq!(Minted::read(&vec![7; length]), None, "{length}");
            assert!(!Minted::is_later(&vec![7; length]), "{length}");
        }
        assert!(Minted::is_later(b"hash-key 2 and whatever that has"));
        assert!(
            !Minted::is_later(b"hash-key 0123456"),
            "a secret may begin so"
        );
    }

    #[test]
    fn of_two_exactly_one_prevails() {
        let (older, newer) = (minted(1, 9), minted(2, 1));
        assert!(older.prevails_over(&newer) && !newer.prevails_over(&older));
        let (one, other) = (minted(1, 1), minted(1, 2));
        assert!(one.prevails_over(&other) && !other.prevails_over(&one));
        assert!(!one.prevails_over(&one));
        assert!(minted(0, 9).prevails_over(&one), "undated is oldest");
    }
}
