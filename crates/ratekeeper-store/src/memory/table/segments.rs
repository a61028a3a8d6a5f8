//! Segments, the parts by which a table grows.
//!
//! This is extendible hashing (Fagin, Nievergelt, Pippenger and Strong, "Extendible hashing: a fast
//! access method for dynamic files", ACM TODS 4, 1979) with segments of memory in place of pages on
//! disk. The first bits of a hash select a segment in a directory; a crowded segment is split, by
//! one more bit, into itself and the next unused one. So counters occupy the first part of the
//! table's memory, in as many segments as they need, and growing never moves more than one
//! segment's counters at a time.
//!
//! ```text
//!  directory   00 01 10 11         segments, as they lie in memory
//!               |  |  |  |          0: 0...    half full
//!               0  0  1  2          1: 10...   full
//!                                   2: 11...   full       3: not in use yet, not even touched
//! ```
//!
//! There are as many segments as the longest prefix has values, so that a table at its largest is
//! divided evenly.

use std::ops::Range;

use super::probe::Probe;
use super::{BUCKET_WORDS, SLOTS};

/// The most buckets of a segment. A split looks at each of its counters under the shard's lock,
/// which takes some tens of microseconds: that is the upper bound. The lower bound: the fewer
/// counters a segment has, the less evenly segments fill, and the more counters find theirs full
/// while the table is not.
const SEGMENT_BUCKETS_MAX: usize = 256;

/// Slots taken of 16 in a crowded segment. With more, searches for a free slot would start to fail;
/// with fewer, memory is wasted.
const CROWDED: usize = 13;

/// Slots taken of 16, without expired counters, in a segment to be split.
const DENSE: usize = 10;

/// The segments of a table, with their owners.
#[derive(Debug)]
pub(super) struct Segments {
    /// The first word of the segment for each prefix of `depth_max` bits.
    directory: Vec<u32>,
    /// Segments in use, in the order of memory.
    segments: Vec<Segment>,
    depth_max: u32,
    /// Buckets of each segment.
    buckets: usize,
}

/// A segment.
#[derive(Clone, Copy, Debug)]
struct Segment {
    counters: usize,
    /// The first bits of the hashes of its counters.
    prefix: usize,
    /// The number of these bits.
    depth: u32,
}

impl Segments {
    /// A single segment in use; `most` buckets give the number of segments.
    pub(super) fn new(most: usize) -> Self {
        let (mut depth_max, mut buckets) = (0, most);
        while buckets > SEGMENT_BUCKETS_MAX {
            buckets /= 2;
            depth_max += 1;
        }
        Self::of(depth_max, buckets)
    }

    /// A single segment in use of two to the power of `depth_max`, with this many buckets each.
    pub(super) fn of(depth_max: u32, buckets: usize) -> Self {
        Self {
            directory: vec![0; 1 << depth_max],
            segments: vec![Segment {
                counters: 0,
                prefix: 0,
                depth: 0,
            }],
            depth_max,
            buckets,
        }
    }

    /// Buckets of all segments together, in use or not.
    pub(super) const fn buckets_max(&self) -> usize {
        self.buckets << self.depth_max
    }

    /// Buckets of the segments in use.
    pub(super) const fn buckets(&self) -> usize {
        self.buckets * self.segments.len()
    }

    /// Buckets of each segment.
    pub(super) const fn buckets_each(&self) -> usize {
        self.buckets
    }

    /// The buckets of a segment in use, by index.
    pub(super) const fn buckets_of(&self, segment: usize) -> Range<usize> {
        segment * self.buckets..(segment + 1) * self.buckets
    }

    /// The first word of the segment for a key.
    #[inline]
    pub(super) fn origin(&self, probe: Probe) -> usize {
        self.directory[probe.prefix(self.depth_max)] as usize
    }

    /// The index of a key's home bucket within its segment.
    #[inline]
    pub(super) const fn home(&self, probe: Probe) -> usize {
        probe.home(self.depth_max, self.buckets)
    }

    /// The segment that contains that word.
    pub(super) const fn at(&self, word: usize) -> usize {
        word / (self.buckets * BUCKET_WORDS)
    }

    /// Counts a new counter; returns true if its segment is now crowded and can be split.
    pub(super) fn add(&mut self, segment: usize) -> bool {
        self.segments[segment].counters += 1;
        self.segments[segment].depth < self.depth_max && self.is_fuller(segment, CROWDED)
    }

    /// Counts a removed counter.
    pub(super) fn subtract(&mut self, segment: usize) {
        self.segments[segment].counters -= 1;
    }

    /// Returns true if a segment is so full that only a split helps for long.
    pub(super) fn is_dense(&self, segment: usize) -> bool {
        self.is_fuller(segment, DENSE)
    }

    fn is_fuller(&self, segment: usize, sixteenths: usize) -> bool {
        self.segments[segment].counters * 16 > self.buckets * SLOTS * sixteenths
    }

    /// Moves half of a segment's prefixes to the next unused one; returns its index.
    #[allow(
        clippy::cast_possible_truncation,
        reason = "BUCKETS_MAX sees to it that words are numbered with 32 bits"
    )]
    pub(super) fn split(&mut self, segment: usize) -> usize {
        let new = self.segments.len();
        let half = &mut self.segments[segment];
        half.depth += 1;
        half.prefix *= 2;
        let upper = Segment {
            counters: 0,
            prefix: half.prefix + 1,
            ..*half
        };
        self.segments.push(upper);
        let each = 1 << (self.depth_max - upper.depth);
        let origin = new * self.buckets * BUCKET_WORDS;
        self.directory[upper.prefix * each..][..each].fill(origin as u32);
        new
    }

    /// A segment that can be split, if any.
    #[cfg(test)]
    pub(super) fn shallowest(&self) -> Option<usize> {
        self.segments
            .iter()
            .position(|segment| segment.depth < self.depth_max)
    }
}
