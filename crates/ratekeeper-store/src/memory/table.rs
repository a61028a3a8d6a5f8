//! A fixed hash table of counters, packed for the cache and for the byte.
//!
//! ```text
//!  bucket: 400 bytes, 50 words
//!  | 7 tags, overflow | 7 metas | key, state | key, state | ...
//!          1             7         2     4      6 words for each of 7 slots
//! ```
//!
//! The scheme is that of F14 (Bronson and Shi, "Open-sourcing F14", Facebook Engineering,
//! 2019): a bucket's tags are compared at once, in a register, and a counter that found its
//! bucket full lies in one further along its probe path, which each passed bucket counts in
//! its overflow byte. A bucket that overflowed nothing ends a search, and removal needs no
//! tombstones. Unlike F14 the table never moves a counter and never grows: the path is
//! [`WINDOW`] buckets long, and what does not fit there must evict.
//!
//! Each key has a slot of its home bucket where it is put if that is free and sought first:
//! most searches then go straight to the counter, one trip to memory instead of two, and
//! never look at the tags. The metas of a bucket lie together, since whoever seeks a counter
//! to evict or to sweep reads them all.
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
pub(super) const BUCKET_BYTES: usize = BUCKET_WORDS * size_of::<u64>();

/// The most buckets of a table: places are numbered with 32 bits.
pub(super) const BUCKETS_MAX: usize = u32::MAX as usize / BUCKET_WORDS;

const BUCKET_WORDS: usize = METAS + SLOTS + SLOTS * ENTRY_WORDS;
const METAS: usize = 1;
const ENTRIES: usize = METAS + SLOTS;
const ENTRY_WORDS: usize = 6;

type Bucket = [u64; BUCKET_WORDS];

/// Subject, identity, and four words of state.
type Entry = [u64; ENTRY_WORDS];

/// Where a counter lies. Stays valid until that counter is removed.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Place {
    /// The number of its bucket's first word.
    base: u32,
    slot: u32,
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

    /// The slot of the home bucket where the counter is sought first.
    #[inline]
    const fn slot(self) -> usize {
        ((((self.hash >> 30) & 0xffff) * SLOTS as u64) >> 16) as usize
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
    /// A table of `buckets`, a prime of at most [`BUCKETS_MAX`].
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

    /// Counters there are places for.
    pub(super) const fn capacity(&self) -> usize {
        self.buckets * SLOTS
    }

    /// Counters in the table.
    pub(super) const fn used(&self) -> usize {
        self.used
    }

    /// The bucket where a key's path begins.
    #[inline]
    #[allow(
        clippy::cast_possible_truncation,
        reason = "below the number of buckets"
    )]
    fn home(&self, probe: Probe) -> usize {
        // Multiply and shift: a division without the division (Lemire, "Fast random integer
        // generation in an interval", 2019).
        ((u128::from(probe.hash) * self.buckets as u128) >> 64) as usize
    }

    /// The place where a key is sought first.
    #[inline]
    fn first(&self, probe: Probe) -> Place {
        place(self.home(probe), probe.slot())
    }

    fn path(&self, probe: Probe) -> Path {
        // The stride comes from bits that nothing else looks at.
        let strides = (self.buckets - 1).min(256) as u64;
        let stride = 1 + ((((probe.hash >> 14) & 0xffff) * strides) >> 16);
        Path {
            bucket: self.home(probe),
            stride: stride as usize,
            buckets: self.buckets,
            left: WINDOW.min(self.buckets),
        }
    }

    /// Where the counter of that key lies.
    #[inline]
    pub(super) fn find(&self, probe: Probe) -> Option<Place> {
        let first = self.first(probe);
        if self.is_at(first, probe.key) {
            return Some(first);
        }
        self.find_along(probe)
    }

    #[inline(never)]
    fn find_along(&self, probe: Probe) -> Option<Place> {
        self.path(probe)
            .find_map(|bucket| self.find_in(bucket, probe))?
    }

    /// Where in that bucket the counter lies, if it does; none at all to look further.
    #[inline]
    fn find_in(&self, bucket: usize, probe: Probe) -> Option<Option<Place>> {
        let tags = self.tags(bucket);
        let places = matches(tags, probe.tag()).map(|slot| place(bucket, slot));
        match { places }.find(|place| self.is_at(*place, probe.key)) {
            None if overflow(tags) > 0 => None,
            place => Some(place),
        }
    }

    #[inline]
    fn tags(&self, bucket: usize) -> u64 {
        self.words[bucket * BUCKET_WORDS]
    }

    #[inline]
    fn tags_mut(&mut self, bucket: usize) -> &mut u64 {
        &mut self.words[bucket * BUCKET_WORDS]
    }

    #[inline]
    fn bucket(&self, at: Place) -> &Bucket {
        let bucket = self.words[at.base as usize..].first_chunk();
        bucket.expect("a place lies within the table")
    }

    #[inline]
    fn bucket_mut(&mut self, at: Place) -> &mut Bucket {
        let bucket = self.words[at.base as usize..].first_chunk_mut();
        bucket.expect("a place lies within the table")
    }

    #[inline]
    fn entry(&self, at: Place) -> &Entry {
        let (entries, _) = self.bucket(at)[ENTRIES..].as_chunks();
        &entries[at.slot()]
    }

    #[inline]
    fn entry_mut(&mut self, at: Place) -> &mut Entry {
        let (entries, _) = self.bucket_mut(at)[ENTRIES..].as_chunks_mut();
        &mut entries[at.slot()]
    }

    /// A free place of a key's window, the first one, but that where it is sought first if
    /// that one is free.
    pub(super) fn free_place(&self, probe: Probe) -> Option<Place> {
        let first = self.first(probe);
        if !self.meta(first).is_used() {
            return Some(first);
        }
        self.path(probe).find_map(|bucket| {
            let slot = matches(self.tags(bucket), 0).next()?;
            Some(place(bucket, slot))
        })
    }

    /// The places of a key's window, the likeliest first: each with the counter's meta, or
    /// none if it is free.
    pub(super) fn window(&self, probe: Probe) -> impl Iterator<Item = (Place, Option<Meta>)> + '_ {
        self.path(probe).flat_map(|bucket| self.places(bucket))
    }

    /// The places of one bucket.
    pub(super) fn places(&self, bucket: usize) -> impl Iterator<Item = (Place, Option<Meta>)> + '_ {
        let tags = self.tags(bucket);
        (0..SLOTS).map(move |slot| {
            let place = place(bucket, slot);
            let used = tag_of(tags, slot) != 0;
            (place, used.then(|| self.meta(place)))
        })
    }

    /// The place of that number, if a counter lies there.
    pub(super) fn used_at(&self, bucket: usize, slot: usize) -> Option<Place> {
        let used = tag_of(self.tags(bucket), slot) != 0;
        used.then_some(place(bucket, slot))
    }

    /// Puts a counter at a free place of its window, its state all zero.
    pub(super) fn insert(&mut self, at: Place, probe: Probe, meta: Meta) {
        for bucket in self.path(probe) {
            let tags = self.tags_mut(bucket);
            if bucket == at.bucket() {
                *tags |= u64::from(probe.tag()) << (8 * at.slot());
                break;
            }
            *tags = overflow_more(*tags);
        }
        let CounterKey { subject, identity } = probe.key;
        *self.entry_mut(at) = [subject, identity, 0, 0, 0, 0];
        self.set_meta(at, meta);
        self.used += 1;
    }

    /// Takes the counter away from `at`.
    pub(super) fn remove(&mut self, at: Place) {
        for bucket in self.path(Probe::new(self.key(at))) {
            let tags = self.tags_mut(bucket);
            if bucket == at.bucket() {
                *tags &= !(0xff << (8 * at.slot()));
                break;
            }
            *tags = overflow_less(*tags);
        }
        *self.entry_mut(at) = [0; ENTRY_WORDS];
        self.bucket_mut(at)[METAS + at.slot()] = 0;
        self.used -= 1;
    }

    /// Whether the counter of that key lies at `at`. A free place has a key too: zeros.
    #[inline]
    pub(super) fn is_at(&self, at: Place, key: CounterKey) -> bool {
        self.key(at) == key && self.meta(at).is_used()
    }

    #[inline]
    pub(super) fn key(&self, at: Place) -> CounterKey {
        let [subject, identity, ..] = *self.entry(at);
        CounterKey { subject, identity }
    }

    #[inline]
    pub(super) fn meta(&self, at: Place) -> Meta {
        Meta::from_word(self.bucket(at)[METAS + at.slot()])
    }

    #[inline]
    pub(super) fn set_meta(&mut self, at: Place, meta: Meta) {
        self.bucket_mut(at)[METAS + at.slot()] = meta.used().word();
    }

    #[inline]
    pub(super) fn state(&self, at: Place) -> &Words {
        let [_, _, state @ ..] = self.entry(at);
        state
    }

    #[inline]
    pub(super) fn state_mut(&mut self, at: Place) -> &mut Words {
        let [_, _, state @ ..] = self.entry_mut(at);
        state
    }
}

impl Place {
    const fn bucket(self) -> usize {
        self.base as usize / BUCKET_WORDS
    }

    #[inline]
    const fn slot(self) -> usize {
        self.slot as usize
    }
}

#[inline]
#[allow(clippy::cast_possible_truncation, reason = "BUCKETS_MAX sees to it")]
const fn place(bucket: usize, slot: usize) -> Place {
    Place {
        base: (bucket * BUCKET_WORDS) as u32,
        slot: slot as u32,
    }
}

#[inline]
const fn tag_of(tags: u64, slot: usize) -> u8 {
    (tags >> (8 * slot)) as u8
}

#[inline]
const fn overflow(tags: u64) -> u64 {
    tags >> 56
}

/// One more counter passed this bucket. At 255 nobody knows any more, and it stays there:
/// searches then go on where they need not.
const fn overflow_more(tags: u64) -> u64 {
    if overflow(tags) == 255 {
        tags
    } else {
        tags + (1 << 56)
    }
}

const fn overflow_less(tags: u64) -> u64 {
    match overflow(tags) {
        0 | 255 => tags,
        _ => tags - (1 << 56),
    }
}

/// The slots whose tag equals `tag`, and now and then one more: a byte is zero where they
/// are equal, and a borrow finds it (Mycroft's trick), sometimes spilling into the next.
/// The first one is always right.
#[inline]
fn matches(tags: u64, tag: u8) -> impl Iterator<Item = usize> {
    const ONES: u64 = 0x0101_0101_0101_0101;
    const TOPS: u64 = 0x0080_8080_8080_8080;
    let differ = tags ^ (ONES * u64::from(tag));
    let mut hits = differ.wrapping_sub(ONES) & !differ & TOPS;
    std::iter::from_fn(move || {
        if hits == 0 {
            return None;
        }
        let slot = hits.trailing_zeros() as usize / 8;
        hits &= hits - 1;
        Some(slot)
    })
}
