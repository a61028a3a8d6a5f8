//! Limits that regions count together: each admits while its own hits, and what the others have last said, sum to less than
//! the limit.
//!
//! No region owns anything. The counter in a region's store has that region's own hits of a window, and beside it lies what
//! others have posted ([`CountedSums`]). A post is a total in a window by number, so posts may be lost, repeated and
//! reordered, and no clocks are compared:
//!
//! ```text
//!  room = limit - own hits - the totals that others posted for the window, or their shares if they are silent
//! ```
//!
//! **Bound.** A hit that was admitted a while ago is in the totals of all others: a region posts every
//! [`interval`](Counted::interval), and a post takes its way. So in a window hits beyond the limit of L are at most what N - 1
//! regions admit in that while, and at most (N - 1) L. Of a region whose clock is ahead, and which has left the window, it is
//! the last hits there that are in no total.
//!
//! **Silence.** Regions that cannot reach each other know nothing of each other, and each may admit the whole limit
//! ([`Silent::Alone`]). Or a region that was not heard for three intervals is taken to have used its share, or what it
//! posted if that is more ([`Silent::Share`]): what all admit then stays within the limit, but for what they admit until they
//! find out. Let p be what a region had posted when regions were cut off from each other, and O its share. Then it admits
//! nothing more, or at most the limit less the larger of p and O of each other one. If no region had used more than its share,
//! these sum to at most the shares of all; if some had, the others leave them just that. The larger of the two has to count: the
//! share alone would forget what was posted, and both would count it twice. A region that is heard again counts as silent
//! until everything that it has counted meanwhile has come. Regions that hear a third one, but not each other, may both
//! use what it leaves, and are bounded as alone.
//!
//! **Changes of the regions.** A total belongs to a region by its [`RegionId`], which is the same whichever others there are.
//! So when regions are added, or leave, what was posted before counts on for those that posted it, and only for them.
//!
//! Nothing here knows a link, a store or a clock. The simulation in `ratekeeper-testkit` runs it with all of them failing.

mod hearing;

pub use hearing::Hearing;

use super::{REGIONS_MAX, RegionId};
use crate::{Limit, MAX_COUNT, Micros};

/// The first byte of what is kept.
const KIND: u8 = 3;

/// The bytes of a number that is kept.
const SHORT: usize = 7;

/// The bytes of an entry.
const ENTRY: usize = 3 * SHORT;

/// The most entries: each region has one for the window that is counted, and one for the next, and all regions may be replaced
/// within a window.
const ENTRIES_MAX: usize = 4 * REGIONS_MAX;

/// The intervals after which a region that was not heard is silent.
const SILENT_INTERVALS: u64 = 3;

/// The way in which regions count a limit together.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Counted {
    /// The time between two posts of a counter.
    pub interval: Micros,
    /// The assumption about regions that are silent.
    pub silent: Silent,
}

/// The assumption about a region that is silent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Silent {
    /// It has used what it posted, and nothing more.
    Alone,
    /// It has used the share of the limit that it has by its weight, or what it posted if that is more.
    Share,
}

impl Counted {
    /// The time without a word after which a region is silent; [`None`] if that makes no difference.
    #[must_use]
    pub const fn silent_after(&self) -> Option<Micros> {
        match self.silent {
            Silent::Alone => None,
            Silent::Share => Some(Micros::new(
                self.interval.get().saturating_mul(SILENT_INTERVALS),
            )),
        }
    }
}

impl Limit {
    /// The same limit in a window of which other regions are taken to have used `elsewhere` hits. They are no part of the
    /// counter, and gone with the window, so the capacity stays: they make a request wait, and never impossible. For fixed
    /// windows; others are unchanged.
    #[must_use]
    pub fn beside(self, elsewhere: u64) -> Self {
        let mut limit = self;
        if self.has_fixed_windows() {
            limit.elsewhere = elsewhere.min(self.quota());
        }
        limit
    }
}

/// The hits that a region has counted in a window.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RegionPost {
    /// The region.
    pub region: RegionId,
    /// The number of the window: its start, in windows since the epoch.
    pub window: u64,
    /// The hits that it has counted in it.
    pub total: u64,
}

/// A region that is silent, and so taken to have used its share.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SilentRegion {
    /// The region.
    pub region: RegionId,
    /// Its share of the limit.
    pub share: u64,
}

/// The totals that other regions have posted, for the window that is counted and the next one.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct CountedSums {
    /// One for each region and window, in the order in which they came.
    posts: Vec<RegionPost>,
}

impl CountedSums {
    /// Takes in a post, while the store counts the window `own`: the larger total of a region counts. Returns false, and
    /// changes nothing, if it is for a window that is over, or begins later than the next one, or too many regions post.
    pub fn take(&mut self, post: RegionPost, own: u64) -> bool {
        if post.window < own || post.window > own.saturating_add(1) {
            return false;
        }
        let mut kept = self.posts.clone();
        kept.retain(|it| it.window >= own);
        let is_same = |it: &RegionPost| it.region == post.region && it.window == post.window;
        match kept.iter().position(is_same) {
            Some(at) => kept[at].total = kept[at].total.max(post.total),
            // No hits are as much as no word of them.
            None if post.total == 0 => return true,
            None if kept.len() < ENTRIES_MAX => kept.push(post),
            None => return false,
        }
        self.posts = kept;
        true
    }

    /// The hits that `region` has posted for `window`; 0 if it has posted none.
    #[must_use]
    pub fn posted(&self, region: RegionId, window: u64) -> u64 {
        let posts = self.posts.iter();
        let mut of_it = posts.filter(|it| it.region == region && it.window == window);
        of_it.next().map_or(0, |it| it.total)
    }

    /// The hits that all others have posted for `window`.
    #[must_use]
    pub fn sum(&self, window: u64) -> u64 {
        let of_it = self.posts.iter().filter(|it| it.window == window);
        of_it.fold(0, |sum, it| sum.saturating_add(it.total))
    }

    /// The hits that all others are taken to have used of `window`, of whom some are silent.
    #[must_use]
    pub fn used(&self, window: u64, silent: &[SilentRegion]) -> u64 {
        let more = silent.iter().map(|it| {
            let posted = self.posted(it.region, window);
            it.share.saturating_sub(posted)
        });
        more.fold(self.sum(window), u64::saturating_add)
    }

    /// Encodes the totals as a region's store keeps them; all numbers are little-endian.
    ///
    /// ```text
    ///  3   n   n times: the region's number (7), window (7), total (7)
    /// ```
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let count = self.posts.len().min(ENTRIES_MAX);
        let mut out = Vec::with_capacity(2 + ENTRY * count);
        // At most `ENTRIES_MAX`.
        out.extend([KIND, u8::try_from(count).unwrap_or(u8::MAX)]);
        for post in self.posts.iter().take(count) {
            for number in [post.region.get(), post.window, post.total] {
                out.extend_from_slice(&number.min(MAX_COUNT).to_le_bytes()[..SHORT]);
            }
        }
        out
    }

    /// Reads what was encoded; empty if nothing is kept. [`None`] if it is something else.
    #[must_use]
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        if bytes.is_empty() {
            return Some(Self::default());
        }
        let (head, entries) = bytes.split_at_checked(2)?;
        let count = usize::from(head[1]);
        if head[0] != KIND || entries.len() != ENTRY * count {
            return None;
        }
        let posts = entries.chunks_exact(ENTRY).map(|entry| RegionPost {
            region: RegionId::from_bits(short(&entry[..SHORT])),
            window: short(&entry[SHORT..2 * SHORT]),
            total: short(&entry[2 * SHORT..]),
        });
        Some(Self {
            posts: posts.collect(),
        })
    }
}

fn short(bytes: &[u8]) -> u64 {
    let digits = bytes.iter().rev();
    digits.fold(0, |sum, byte| sum << 8 | u64::from(*byte))
}

#[cfg(test)]
mod tests;
