//! A fixed hash table of counters, packed for the cache and for the byte.
//!
//! ```text
//!  bucket: 400 bytes = 50 words
//!  | tags x 7, overflow | meta x 7 | key 0, state 0 | key 1, state 1 | ... | key 6, state 6 |
//!    8 bytes              56 bytes   16 + 32 bytes
//! ```
//!
//! The scheme is that of F14 (Bronson and Shi, "Open-sourcing F14", Facebook Engineering,
//! 2019): a bucket's tags are compared at once, in a register, and a counter that found its
//! bucket full lies in one further along its probe path, which each passed bucket counts in
//! its overflow byte. A bucket that overflowed nothing ends a search, and removal needs no
//! tombstones. Unlike F14 the table never moves a counter and never grows: the path is
//! [`WINDOW`] buckets long, and what does not fit there must evict.
//!
//! The number of buckets is a prime, so that any memory limit is used to the last bucket, and
//! a path of any stride visits each bucket once. The memory comes zeroed from the system, page
//! by page as it is touched: an unused table costs nothing.

use ratekeeper_core::Words;

use super::meta::Meta;
use crate::CounterKey;

/// Counters a bucket holds.
pub(super) const SLOTS: usize = 7;

/// Buckets in which a counter may lie.
pub(super) const WINDOW: usize = 16;

/// Bytes of a bucket.
pub(super) const BUCKET_BYTES: usize = BUCKET_WORDS * 8;

const BUCKET_WORDS: usize = 50;
const METAS: usize = 1;
const ENTRIES: usize = METAS + SLOTS;
const ENTRY_WORDS: usize = 6;

type Bucket = [u64; BUCKET_WORDS];

/// Where a counter lies. Stays valid until that counter is removed.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Place {
    bucket: u32,
    slot: u8,
}

/// A key with what the table derives from it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Probe {
    pub(super) key: CounterKey,
    hash: u64,
}

impl Probe {
    #[inline]
    pub(super) fn new(key: CounterKey) -> Self {
        // Keys are keyed hashes already; one multiplication makes the table good-natured
        // towards callers that number their counters.
        const ODD: u64 = 0x9e37_79b9_7f4a_7c15;
        let wide = u128::from(key.identity ^ key.subject.rotate_left(32)) * u128::from(ODD);
        let [low, high] = [wide as u64, (wide >> 64) as u64];
        Self {
            key,
            hash: low ^ high,
        }
    }

    /// Six bits that the table itself does not use.
    #[inline]
    pub(super) const fn shard_bits(self) -> usize {
        (self.hash & 63) as usize
    }

    #[inline]
    const fn tag(self) -> u8 {
        let tag = (self.hash >> 6) as u8;
        if tag == 0 { 1 } else { tag }
    }
}

/// The buckets in which a counter may lie, the likeliest first.
struct Path {
    bucket: usize,
    stride: usize,
    buckets: usize,
    left: usize,
}

impl Iterator for Path {
    type Item = usize;

    #[inline]
    fn next(&mut self) -> Option<usize> {
        self.left = self.left.checked_sub(1)?;
        let bucket = self.bucket;
        let next = bucket + self.stride;
        self.bucket = if next < self.buckets {
            next
        } else {
            next - self.buckets
        };
        Some(bucket)
    }
}

/// The buckets.
#[derive(Debug)]
pub(super) struct Table {
    words: Vec<u64>,
    buckets: usize,
    used: usize,
}

impl Table {
    /// A table of `buckets`, a prime of at most 2^32.
    pub(super) fn new(buckets: usize) -> Self {
        Self {
            words: vec![0; buckets * BUCKET_WORDS],
            buckets,
            used: 0,
        }
    }

    pub(super) const fn buckets(&self) -> usize {
        self.buckets
    }

    pub(super) const fn slots(&self) -> usize {
        self.buckets * SLOTS
    }

    /// Counters in the table.
    pub(super) const fn used(&self) -> usize {
        self.used
    }

    #[inline]
    fn bucket(&self, index: usize) -> &Bucket {
        &self.words.as_chunks().0[index]
    }

    #[inline]
    fn bucket_mut(&mut self, index: usize) -> &mut Bucket {
        &mut self.words.as_chunks_mut().0[index]
    }

    #[inline]
    #[allow(
        clippy::cast_possible_truncation,
        reason = "below the number of buckets"
    )]
    fn path(&self, probe: Probe) -> Path {
        // Multiply and shift: a division without the division (Lemire, "Fast random integer
        // generation in an interval", 2019). The stride comes from bits the rest leaves alone.
        let bucket = (u128::from(probe.hash) * self.buckets as u128) >> 64;
        let strides = (self.buckets - 1).min(256) as u64;
        let stride = 1 + ((((probe.hash >> 14) & 0xffff) * strides) >> 16);
        Path {
            bucket: bucket as usize,
            stride: stride as usize,
            buckets: self.buckets,
            left: WINDOW.min(self.buckets),
        }
    }

    /// Where the counter of that key lies.
    #[inline]
    pub(super) fn find(&self, probe: Probe) -> Option<Place> {
        let tag = probe.tag();
        for index in self.path(probe) {
            let bucket = self.bucket(index);
            for slot in matches(bucket[0], tag) {
                if key_of(bucket, slot) == probe.key {
                    return Some(place(index, slot));
                }
            }
            if overflow(bucket[0]) == 0 {
                return None;
            }
        }
        None
    }

    /// All the places of a key's window, the likeliest first: each with the counter's meta,
    /// or none if it is free.
    pub(super) fn window(&self, probe: Probe) -> impl Iterator<Item = (Place, Option<Meta>)> + '_ {
        self.path(probe).flat_map(|index| self.places(index))
    }

    /// The places of one bucket.
    pub(super) fn places(&self, index: usize) -> impl Iterator<Item = (Place, Option<Meta>)> + '_ {
        let bucket = self.bucket(index);
        (0..SLOTS).map(move |slot| {
            let used = tag_of(bucket[0], slot) != 0;
            let meta = Meta::from_word(bucket[METAS + slot]);
            (place(index, slot), used.then_some(meta))
        })
    }

    /// Puts a counter at a free place of its window, its state all zero.
    pub(super) fn insert(&mut self, at: Place, probe: Probe, meta: Meta) {
        for index in self.path(probe) {
            let bucket = self.bucket_mut(index);
            if index == at.bucket() {
                bucket[0] |= u64::from(probe.tag()) << (8 * at.slot());
                bucket[METAS + at.slot()] = meta.word();
                let entry = entry_mut(bucket, at.slot());
                *entry = [probe.key.subject, probe.key.identity, 0, 0, 0, 0];
                break;
            }
            bucket[0] = overflow_more(bucket[0]);
        }
        self.used += 1;
    }

    /// Takes the counter away from `at`.
    pub(super) fn remove(&mut self, at: Place) {
        let probe = Probe::new(self.key(at));
        for index in self.path(probe) {
            let bucket = self.bucket_mut(index);
            if index == at.bucket() {
                bucket[0] &= !(0xff << (8 * at.slot()));
                break;
            }
            bucket[0] = overflow_less(bucket[0]);
        }
        self.used -= 1;
    }

    /// Whether the counter of that key lies at `at`.
    pub(super) fn holds(&self, at: Place, key: CounterKey) -> bool {
        let bucket = self.bucket(at.bucket());
        tag_of(bucket[0], at.slot()) != 0 && key_of(bucket, at.slot()) == key
    }

    /// The place of that number, if a counter lies there.
    pub(super) fn used_at(&self, bucket: usize, slot: usize) -> Option<Place> {
        let used = tag_of(self.bucket(bucket)[0], slot) != 0;
        used.then_some(place(bucket, slot))
    }

    pub(super) fn key(&self, at: Place) -> CounterKey {
        key_of(self.bucket(at.bucket()), at.slot())
    }

    #[inline]
    pub(super) fn meta(&self, at: Place) -> Meta {
        Meta::from_word(self.bucket(at.bucket())[METAS + at.slot()])
    }

    #[inline]
    pub(super) fn set_meta(&mut self, at: Place, meta: Meta) {
        self.bucket_mut(at.bucket())[METAS + at.slot()] = meta.word();
    }

    #[inline]
    pub(super) fn state(&self, at: Place) -> &Words {
        let [_, _, state @ ..] = entry(self.bucket(at.bucket()), at.slot());
        state
    }

    #[inline]
    pub(super) fn state_mut(&mut self, at: Place) -> &mut Words {
        let [_, _, state @ ..] = entry_mut(self.bucket_mut(at.bucket()), at.slot());
        state
    }
}

impl Place {
    #[inline]
    const fn bucket(self) -> usize {
        self.bucket as usize
    }

    #[inline]
    const fn slot(self) -> usize {
        self.slot as usize
    }
}

#[inline]
#[allow(clippy::cast_possible_truncation, reason = "2^32 buckets of 7 slots")]
const fn place(bucket: usize, slot: usize) -> Place {
    Place {
        bucket: bucket as u32,
        slot: slot as u8,
    }
}

#[inline]
fn entry(bucket: &Bucket, slot: usize) -> &[u64; ENTRY_WORDS] {
    &bucket[ENTRIES..].as_chunks().0[slot]
}

#[inline]
fn entry_mut(bucket: &mut Bucket, slot: usize) -> &mut [u64; ENTRY_WORDS] {
    &mut bucket[ENTRIES..].as_chunks_mut().0[slot]
}

#[inline]
fn key_of(bucket: &Bucket, slot: usize) -> CounterKey {
    let [subject, identity, ..] = *entry(bucket, slot);
    CounterKey { subject, identity }
}

#[inline]
const fn tag_of(header: u64, slot: usize) -> u8 {
    (header >> (8 * slot)) as u8
}

#[inline]
const fn overflow(header: u64) -> u64 {
    header >> 56
}

/// One more counter passed this bucket. At 255 nobody knows any more, and it stays there:
/// searches then go on where they need not.
const fn overflow_more(header: u64) -> u64 {
    if overflow(header) == 255 {
        header
    } else {
        header + (1 << 56)
    }
}

const fn overflow_less(header: u64) -> u64 {
    match overflow(header) {
        0 | 255 => header,
        _ => header - (1 << 56),
    }
}

/// The slots whose tag equals `tag`, and now and then one more: a byte is zero where they
/// are equal, and a borrow finds it (Mycroft's trick), sometimes spilling into the next.
#[inline]
fn matches(header: u64, tag: u8) -> impl Iterator<Item = usize> {
    const ONES: u64 = 0x0101_0101_0101_0101;
    const TAGS: u64 = 0x0080_8080_8080_8080;
    let differ = header ^ (ONES * u64::from(tag));
    let mut hits = differ.wrapping_sub(ONES) & !differ & TAGS;
    std::iter::from_fn(move || {
        if hits == 0 {
            return None;
        }
        let slot = hits.trailing_zeros() as usize / 8;
        hits &= hits - 1;
        Some(slot)
    })
}
