//! The requests of a run, encoded before it begins.

use bytes::Bytes;

use crate::keys::Picker;

/// Requests of equal length in one buffer: taking one does not allocate.
#[derive(Clone, Debug)]
pub(crate) struct Payloads {
    bytes: Bytes,
    length: usize,
}

impl Payloads {
    /// All of `requests`, which have one length because names of keys have.
    pub(crate) fn new(requests: impl Iterator<Item = Vec<u8>>) -> Self {
        let mut bytes = Vec::new();
        let mut length = 0;
        for request in requests {
            debug_assert!(
                length == 0 || length == request.len(),
                "requests of one length"
            );
            length = request.len();
            bytes.extend(request);
        }
        Self {
            bytes: bytes.into(),
            length,
        }
    }

    /// The request with that number, which must exist.
    pub(crate) fn get(&self, number: u32) -> Bytes {
        let start = number as usize * self.length;
        self.bytes.slice(start..start + self.length)
    }
}

/// The order of requests.
#[derive(Clone, Debug)]
pub(crate) enum Order {
    /// Drawn from the distribution of keys.
    ByKey(Picker),
    /// One after the other, cyclically.
    InTurn { count: u32, next: u32 },
}

impl Order {
    /// The same order for another stream, from a different start.
    pub(crate) fn of_worker(&self, number: u32) -> Self {
        match self {
            Self::ByKey(picker) => Self::ByKey(picker.reseeded(u64::from(number) + 2)),
            Self::InTurn { count, .. } => Self::InTurn {
                count: *count,
                next: number.wrapping_mul(97) % (*count).max(1),
            },
        }
    }

    pub(crate) fn next(&mut self) -> u32 {
        match self {
            Self::ByKey(picker) => picker.next(),
            Self::InTurn { count, next } => {
                let number = *next;
                *next = (number + 1) % (*count).max(1);
                number
            }
        }
    }
}
