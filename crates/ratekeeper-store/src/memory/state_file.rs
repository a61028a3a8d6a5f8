//! The layout of a state file.
//!
//! ```text
//!  "RATEKEEP" | version u32 | header bytes u32 | saved at u64 (us) | header | checksum u64
//!  block*      counters u32 | bytes u32 (> 0)  | counters          | checksum u64
//!  end         0 u32        | 0 u32            | counters in all u64 | checksum u64
//!  block*      records u32  | bytes u32 (> 0)  | records           | checksum u64
//!  end         0 u32        | 0 u32            | records in all u64  | checksum u64
//! ```
//!
//! Version 2 ends after the counters. Before version 4 nobody knew the rules of the counters: the caller's header has what
//! tells them.
//!
//! All integers are little endian. A checksum is the SipHash-1-3 of everything since the last one;
//! it detects accidents, not forgeries. A counter is its key (2 words), its meta, then either its
//! non-zero state words (a mask in the meta selects them) or, if its state is out of line, the
//! number of words and the words. A record of an idempotent request is described in `once/saved.rs`.

use std::hash::Hasher;

use siphasher::sip::SipHasher13;

use super::meta::Meta;
use crate::CounterKey;

pub(super) const MAGIC: [u8; 8] = *b"RATEKEEP";

/// The version without records of idempotent requests.
pub(super) const WITHOUT_RECORDS: u32 = 2;

/// The version whose counters belong to no rule.
pub(super) const WITHOUT_RULES: u32 = 3;

/// Magic, version, length of the header, time.
pub(super) const FIXED_BYTES: usize = 24;

/// The most bytes of a caller's header: ten for each rule, and more.
pub(super) const HEADER_BYTES_MAX: usize = 1 << 20;

/// The state of a counter in the file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Saved<'a> {
    Words([u64; 4]),
    Heap(&'a [u64]),
}

/// The outcome of loading a counter, or a record, of the file.
pub(super) enum Restored {
    Alive,
    Expired,
    NoRoom,
}

/// The position in the meta of the mask of state words; the table does not use these bits.
const MASK_SHIFT: u32 = 58;

pub(super) fn checksum(bytes: &[u8]) -> u64 {
    let mut hasher = SipHasher13::new();
    hasher.write(bytes);
    hasher.finish()
}

/// Appends a counter to `out`.
pub(super) fn encode(out: &mut Vec<u8>, key: CounterKey, meta: Meta, state: &Saved<'_>) {
    let mut word = |word: u64| out.extend_from_slice(&word.to_le_bytes());
    word(key.subject);
    word(key.identity);
    match state {
        Saved::Words(words) => {
            let mask = (0..4).fold(0, |mask, i| mask | (u64::from(words[i] != 0) << i));
            word(meta.word() | mask << MASK_SHIFT);
            words
                .iter()
                .filter(|state| **state != 0)
                .copied()
                .for_each(word);
        }
        Saved::Heap(heap) => {
            word(meta.word());
            word(heap.len() as u64);
            heap.iter().copied().for_each(word);
        }
    }
}

/// The words of a block.
pub(super) struct Words<'a>(&'a [[u8; 8]]);

impl<'a> Words<'a> {
    /// None unless `bytes` are whole words.
    pub(super) fn of(bytes: &'a [u8]) -> Option<Self> {
        let (words, rest) = bytes.as_chunks();
        rest.is_empty().then_some(Self(words))
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn next(&mut self) -> Option<u64> {
        let (first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(u64::from_le_bytes(*first))
    }

    /// Reads a counter; the words of a heap state go to `heap`. None if the words end early.
    pub(super) fn counter<'b>(
        &mut self,
        heap: &'b mut Vec<u64>,
    ) -> Option<(CounterKey, Meta, Saved<'b>)> {
        let (subject, identity) = (self.next()?, self.next()?);
        let word = self.next()?;
        let meta = Meta::from_word(word & !(15 << MASK_SHIFT));
        let key = CounterKey { subject, identity };
        if meta.is_heap() {
            let len = usize::try_from(self.next()?).ok()?;
            let (words, rest) = self.0.split_at_checked(len)?;
            self.0 = rest;
            heap.clear();
            heap.extend(words.iter().map(|word| u64::from_le_bytes(*word)));
            return Some((key, meta, Saved::Heap(heap)));
        }
        let mut words = [0; 4];
        for (i, state) in words.iter_mut().enumerate() {
            if word >> MASK_SHIFT & (1 << i) != 0 {
                *state = self.next()?;
            }
        }
        Some((key, meta, Saved::Words(words)))
    }
}
