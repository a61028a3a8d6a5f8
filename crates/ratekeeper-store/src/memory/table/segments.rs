//! The parts in which a table comes into use.
//!
//! This is extendible hashing (Fagin, Nievergelt, Pippenger and Strong, "Extendible hashing: a
//! fast access method for dynamic files", ACM TODS 4, 1979) with segments of memory for pages of
//! a disk. The first bits of a hash are looked up in a directory that names a segment; one that
//! is crowded is split, by one more bit, into itself and the next unused one. So counters lie in
//! the first part of the table's memory, as many segments as they need, and growing never moves
//! more than one segment's counters at a time.
//!
//! ```text
//!  directory   00 01 10 11         segments, as they lie in memory
//!               |  |  |  |          0: 0...    half full
//!               0  0  1  2          1: 10...   full
//!                                   2: 11...   full       3: not in use yet, not even touched
//! ```
//!
//! There are as many segments as the longest prefix has values, so that a table at its largest
//! is divided evenly.

use std::ops::Range;

use super::probe::Probe;
use super::{BUCKET_WORDS, SLOTS};

/// The most buckets of a segment. A split looks at each of its counters under the shard's lock,
/// some tens of microseconds: that bounds them from above. From below, the fewer counters it has
/// the less evenly segments fill, and the more counters find theirs full in a table that is not.
const SEGMENT_BUCKETS_MAX: usize = 256;

/// Of 16 slots so many are taken in a segment that is crowded. Above, the first searches for a
/// free slot would fail; below, the memory is not used.
const CROWDED: usize = 13;

/// Of 16 slots so many are taken in a segment that is split, when the expired are gone.
const DENSE: usize = 10;

/// Which parts of a table are in use, and for whom.
#[derive(Debug)]
pub(super) struct Segments {
    /// The first word of the segment of each prefix of `depth_max` bits.
    directory: Vec<u32>,
    /// Those in use, as they lie in memory.
    segments: Vec<Segment>,
    depth_max: u32,
    /// Buckets of each.
    buckets: usize,
}

/// One part.
#[derive(Clone, Copy, Debug)]
struct Segment {
    counters: usize,
    /// The hashes of its counters begin with these bits,
    prefix: usize,
    /// of which there are so many.
    depth: u32,
}

impl Segments {
    /// One segment in use of as many as `most` buckets give.
    pub(super) fn new(most: usize) -> Self {
        let (mut depth_max, mut buckets) = (0, most);
        while buckets > SEGMENT_BUCKETS_MAX {
            buckets /= 2;
            depth_max += 1;
        }
        Self::of(depth_max, buckets)
    }

    /// One segment in use of two to the power of `depth_max`, each of so many buckets.
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

    /// Buckets of all segments together, whether in use or not.
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

    /// The buckets of a segment in use, by number.
    pub(super) const fn buckets_of(&self, segment: usize) -> Range<usize> {
        segment * self.buckets..(segment + 1) * self.buckets
    }

    /// The first word of the segment where a key's counter lies.
    #[inline]
    pub(super) fn origin(&self, probe: Probe) -> usize {
        self.directory[probe.prefix(self.depth_max)] as usize
    }

    /// The number of a key's home bucket within its segment.
    #[inline]
    pub(super) const fn home(&self, probe: Probe) -> usize {
        probe.home(self.depth_max, self.buckets)
    }

    /// The segment in which that word lies.
    pub(super) const fn at(&self, word: usize) -> usize {
        word / (self.buckets * BUCKET_WORDS)
    }

    /// Counts a counter that came; whether its segment is crowded now and can be split.
    pub(super) fn add(&mut self, segment: usize) -> bool {
        self.segments[segment].counters += 1;
        self.segments[segment].depth < self.depth_max && self.is_fuller(segment, CROWDED)
    }

    /// Counts a counter that went.
    pub(super) fn subtract(&mut self, segment: usize) {
        self.segments[segment].counters -= 1;
    }

    /// Whether so much of a segment is taken that only a split gives room for long.
    pub(super) fn is_dense(&self, segment: usize) -> bool {
        self.is_fuller(segment, DENSE)
    }

    fn is_fuller(&self, segment: usize, sixteenths: usize) -> bool {
        self.segments[segment].counters * 16 > self.buckets * SLOTS * sixteenths
    }

    /// Hands half of a segment's prefixes to the next unused one; its number.
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

    /// A segment that can be split, if there is one.
    #[cfg(test)]
    pub(super) fn shallowest(&self) -> Option<usize> {
        self.segments
            .iter()
            .position(|segment| segment.depth < self.depth_max)
    }
}
