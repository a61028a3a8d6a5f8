//! A hash table of counters, compact and cache-friendly.
//!
//! ```text
//!  bucket: 400 bytes, 50 words
//!  | 7 tags, overflow | 7 metas | key, state | key, state | ...
//!          1             7         2     4      6 words for each of 7 slots
//! ```
//!
//! The scheme is that of F14 (Bronson and Shi, "Open-sourcing F14", Facebook Engineering, 2019): a
//! bucket's tags are compared at once, in a register. A counter whose bucket was full is in one
//! further along its probe path; each passed bucket counts it in its overflow byte. A bucket
//! without overflow ends a search, and removal needs no tombstones. Unlike in F14, a path is at
//! most [`WINDOW`] buckets long, all in one [segment](segments), and a counter that does not fit
//! there must evict another.
//!
//! Each key has a preferred slot in its home bucket, which is used if it is free and looked at
//! first: most searches then go straight to the counter, with one memory access instead of two, and
//! never look at the tags. The metas of a bucket are contiguous, since eviction and sweeping read
//! all of them.
//!
//! The memory of the largest table is reserved at once, and comes zeroed from the system, page by
//! page as segments come into use: a few counters are close together, however large the table may
//! become. A table does not shrink; expired counters leave room for others in place.

mod probe;
mod segments;
mod tags;

use std::ops::Range;

use ratekeeper_core::Words;

use super::meta::Meta;
use crate::CounterKey;
pub(super) use probe::Probe;
use segments::Segments;
use tags::{matches, overflow, overflow_less, overflow_more, tag_of};

/// Counters in a bucket.
pub(super) const SLOTS: usize = 7;

/// Buckets in which a counter may be, repetitions included.
pub(super) const WINDOW: usize = 16;

/// Bytes of a bucket.
pub(super) const BUCKET_BYTES: usize = BUCKET_WORDS * size_of::<u64>();

/// The most buckets of a table: positions are 32-bit numbers.
pub(super) const BUCKETS_MAX: usize = u32::MAX as usize / BUCKET_WORDS;

const BUCKET_WORDS: usize = METAS + SLOTS + SLOTS * ENTRY_WORDS;
const METAS: usize = 1;
const ENTRIES: usize = METAS + SLOTS;
const ENTRY_WORDS: usize = 6;

type Bucket = [u64; BUCKET_WORDS];

/// Subject, identity, and four words of state.
type Entry = [u64; ENTRY_WORDS];

/// The position of a counter. Valid until that counter is removed or its segment is split.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Position {
    /// The index of its bucket's first word.
    base: u32,
    slot: u32,
}

/// The buckets.
#[derive(Debug)]
pub(super) struct Table {
    words: Vec<u64>,
    segments: Segments,
    used: usize,
    /// A segment to be split before more counters come.
    crowded: Option<usize>,
}

impl Table {
    /// A table that grows to `buckets`, at most [`BUCKETS_MAX`], or slightly fewer.
    pub(super) fn new(buckets: usize) -> Self {
        Self::of(Segments::new(buckets))
    }

    /// A table of at most two to the power of `depth_max` segments with this many buckets each.
    #[cfg(test)]
    pub(super) fn growing(depth_max: u32, buckets: usize) -> Self {
        Self::of(Segments::of(depth_max, buckets))
    }

    /// Splits every segment as far as possible.
    #[cfg(test)]
    pub(super) fn grow_fully(&mut self) {
        while let Some(segment) = self.segments.shallowest() {
            assert!(self.split(segment).is_empty());
        }
    }

    fn of(segments: Segments) -> Self {
        Self {
            words: vec![0; segments.buckets_max() * BUCKET_WORDS],
            segments,
            used: 0,
            crowded: None,
        }
    }

    /// The most buckets to which a table of at most `buckets` grows.
    pub(super) fn buckets_within(buckets: usize) -> usize {
        Segments::new(buckets).buckets_max()
    }

    /// Buckets in use: those with lower indexes.
    pub(super) const fn buckets(&self) -> usize {
        self.segments.buckets()
    }

    /// Buckets of the table at its largest.
    pub(super) const fn buckets_max(&self) -> usize {
        self.segments.buckets_max()
    }

    /// Counters that the table can hold at its largest.
    pub(super) const fn capacity(&self) -> usize {
        self.buckets_max() * SLOTS
    }

    /// Counters in the table.
    pub(super) const fn used(&self) -> usize {
        self.used
    }

    /// The preferred position of a key.
    #[inline]
    fn first(&self, probe: Probe) -> Position {
        let home = self.segments.home(probe) * BUCKET_WORDS;
        place(self.segments.origin(probe) + home, probe.slot())
    }

    /// The buckets in which a key's counter may be, the likeliest first; the first word of each.
    fn path(&self, probe: Probe) -> impl Iterator<Item = usize> + use<> {
        self.path_from(self.segments.origin(probe), probe)
    }

    /// The same for a counter in the segment that begins at `origin`.
    fn path_from(&self, origin: usize, probe: Probe) -> impl Iterator<Item = usize> + use<> {
        let buckets = self.segments.buckets_each();
        let home = self.segments.home(probe);
        std::iter::once(home)
            .chain(probe.others(buckets))
            .take(WINDOW)
            .map(move |bucket| origin + bucket * BUCKET_WORDS)
    }

    /// The same for the counter at `at`.
    fn path_to(&self, at: Position, probe: Probe) -> impl Iterator<Item = usize> + use<> {
        let segment = self.segments.at(at.base());
        let buckets = self.segments.buckets_of(segment);
        self.path_from(buckets.start * BUCKET_WORDS, probe)
    }

    /// The position of the counter with that key.
    #[inline]
    pub(super) fn find(&self, probe: Probe) -> Option<Position> {
        let first = self.first(probe);
        if self.is_at(first, probe.key) {
            return Some(first);
        }
        self.find_along(probe)
    }

    #[inline(never)]
    fn find_along(&self, probe: Probe) -> Option<Position> {
        self.path(probe)
            .find_map(|base| self.find_in(base, probe))?
    }

    /// The result for that bucket: the counter's position, or none if it does not exist; None to
    /// search on.
    #[inline]
    fn find_in(&self, base: usize, probe: Probe) -> Option<Option<Position>> {
        let tags = self.words[base];
        let places = matches(tags, probe.tag()).map(|slot| place(base, slot));
        match { places }.find(|place| self.is_at(*place, probe.key)) {
            None if overflow(tags) > 0 => None,
            place => Some(place),
        }
    }

    #[inline]
    fn bucket(&self, at: Position) -> &Bucket {
        let bucket = self.words[at.base()..].first_chunk();
        bucket.expect("a place lies within the table")
    }

    #[inline]
    fn bucket_mut(&mut self, at: Position) -> &mut Bucket {
        let bucket = self.words[at.base()..].first_chunk_mut();
        bucket.expect("a place lies within the table")
    }

    #[inline]
    fn entry(&self, at: Position) -> &Entry {
        let (entries, _) = self.bucket(at)[ENTRIES..].as_chunks();
        &entries[at.slot()]
    }

    #[inline]
    fn entry_mut(&mut self, at: Position) -> &mut Entry {
        let (entries, _) = self.bucket_mut(at)[ENTRIES..].as_chunks_mut();
        &mut entries[at.slot()]
    }

    /// A free position in a key's window: the preferred one if it is free, else the first.
    pub(super) fn free_place(&self, probe: Probe) -> Option<Position> {
        let first = self.first(probe);
        if !self.meta(first).is_used() {
            return Some(first);
        }
        self.path(probe).find_map(|base| {
            let slot = matches(self.words[base], 0).next()?;
            Some(place(base, slot))
        })
    }

    /// The positions in a key's window, the likeliest first, each with the counter's meta, or none
    /// if it is free.
    pub(super) fn window(
        &self,
        probe: Probe,
    ) -> impl Iterator<Item = (Position, Option<Meta>)> + '_ {
        self.path(probe).flat_map(|base| self.places_from(base))
    }

    /// The positions in the bucket with that index.
    pub(super) fn places(
        &self,
        bucket: usize,
    ) -> impl Iterator<Item = (Position, Option<Meta>)> + '_ {
        self.places_from(bucket * BUCKET_WORDS)
    }

    fn places_from(&self, base: usize) -> impl Iterator<Item = (Position, Option<Meta>)> + '_ {
        let tags = self.words[base];
        (0..SLOTS).map(move |slot| {
            let place = place(base, slot);
            let used = tag_of(tags, slot) != 0;
            (place, used.then(|| self.meta(place)))
        })
    }

    /// The position with that slot number, if it holds a counter.
    pub(super) fn used_at(&self, bucket: usize, slot: usize) -> Option<Position> {
        let base = bucket * BUCKET_WORDS;
        let used = tag_of(self.words[base], slot) != 0;
        used.then_some(place(base, slot))
    }

    /// Adds a counter at a free position of its window, with its state all zero.
    pub(super) fn insert(&mut self, at: Position, probe: Probe, meta: Meta) {
        for base in self.path_to(at, probe) {
            let tags = &mut self.words[base];
            if base == at.base() {
                *tags |= u64::from(probe.tag()) << (8 * at.slot());
                break;
            }
            *tags = overflow_more(*tags);
        }
        let CounterKey { subject, identity } = probe.key;
        *self.entry_mut(at) = [subject, identity, 0, 0, 0, 0];
        self.set_meta(at, meta);
        self.used += 1;
        let segment = self.segments.at(at.base());
        if self.segments.add(segment) {
            self.crowded = Some(segment);
        }
    }

    /// Removes the counter at `at`.
    pub(super) fn remove(&mut self, at: Position) {
        for base in self.path_to(at, Probe::new(self.key(at))) {
            let tags = &mut self.words[base];
            if base == at.base() {
                *tags &= !(0xff << (8 * at.slot()));
                break;
            }
            *tags = overflow_less(*tags);
        }
        *self.entry_mut(at) = [0; ENTRY_WORDS];
        self.bucket_mut(at)[METAS + at.slot()] = 0;
        self.used -= 1;
        self.segments.subtract(self.segments.at(at.base()));
    }

    /// A segment that has become crowded and can be split. Returned once; the next counter in it
    /// reports it again.
    #[inline]
    pub(super) const fn take_crowded(&mut self) -> Option<usize> {
        self.crowded.take()
    }

    /// Returns true if a segment is so full that only a split helps for long.
    pub(super) fn is_dense(&self, segment: usize) -> bool {
        self.segments.is_dense(segment)
    }

    /// The buckets of a segment, by index.
    pub(super) const fn buckets_of(&self, segment: usize) -> Range<usize> {
        self.segments.buckets_of(segment)
    }

    /// Splits a crowded segment: about half of its counters move to the next one. Returns those
    /// that found no room there, which only happens if keys are not hashes.
    #[must_use = "they are gone from the table"]
    pub(super) fn split(&mut self, segment: usize) -> Vec<(Meta, Words)> {
        let new = self.segments.split(segment);
        let new = self.segments.buckets_of(new);
        // Write first: a page that is read before it is written faults twice.
        self.words[new.start * BUCKET_WORDS..new.end * BUCKET_WORDS].fill(0);
        let mut homeless = Vec::new();
        for bucket in self.segments.buckets_of(segment) {
            for slot in 0..SLOTS {
                let Some(at) = self.used_at(bucket, slot) else {
                    continue;
                };
                let probe = Probe::new(self.key(at));
                if self.segments.at(self.segments.origin(probe)) == segment {
                    continue;
                }
                let (meta, state) = (self.meta(at), *self.state(at));
                self.remove(at);
                match self.free_place(probe) {
                    Some(place) => {
                        self.insert(place, probe, meta);
                        *self.state_mut(place) = state;
                    }
                    None => homeless.push((meta, state)),
                }
            }
        }
        homeless
    }

    /// Returns true if the counter with that key is at `at`. A free position has a key too: zeros.
    #[inline]
    pub(super) fn is_at(&self, at: Position, key: CounterKey) -> bool {
        self.key(at) == key && self.meta(at).is_used()
    }

    #[inline]
    pub(super) fn key(&self, at: Position) -> CounterKey {
        let [subject, identity, ..] = *self.entry(at);
        CounterKey { subject, identity }
    }

    #[inline]
    pub(super) fn meta(&self, at: Position) -> Meta {
        Meta::from_word(self.bucket(at)[METAS + at.slot()])
    }

    #[inline]
    pub(super) fn set_meta(&mut self, at: Position, meta: Meta) {
        self.bucket_mut(at)[METAS + at.slot()] = meta.used().word();
    }

    #[inline]
    pub(super) fn state(&self, at: Position) -> &Words {
        let [_, _, state @ ..] = self.entry(at);
        state
    }

    #[inline]
    pub(super) fn state_mut(&mut self, at: Position) -> &mut Words {
        let [_, _, state @ ..] = self.entry_mut(at);
        state
    }
}

impl Position {
    #[inline]
    const fn base(self) -> usize {
        self.base as usize
    }

    #[inline]
    const fn slot(self) -> usize {
        self.slot as usize
    }
}

#[inline]
#[allow(clippy::cast_possible_truncation, reason = "BUCKETS_MAX sees to it")]
const fn place(base: usize, slot: usize) -> Position {
    Position {
        base: base as u32,
        slot: slot as u32,
    }
}
