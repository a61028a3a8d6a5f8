//! The counter of one region, under whatever share it has.

use std::collections::VecDeque;

use ratekeeper_core::Timestamp;

use super::plan::{Kind, RegionPlan};

/// The parts of a hit in which buckets count.
pub(super) const HIT: u64 = 1_000_000;

/// A counter in a region's store.
#[derive(Clone, Debug)]
pub(super) enum Counter {
    /// The window that is counted, and its hits.
    Windows {
        length: u64,
        window: u64,
        count: u64,
    },
    /// Groups of hits by the time of their first one.
    Log {
        window: u64,
        group: u64,
        groups: VecDeque<(u64, u64)>,
        count: u64,
        last: u64,
    },
    /// The level in millionths of a hit.
    Bucket {
        window: u64,
        level: u64,
        last: Option<u64>,
    },
}

impl Counter {
    pub(super) fn new(plan: &RegionPlan, share: u64) -> Self {
        match plan.kind {
            Kind::Windows => Self::Windows {
                length: plan.window,
                window: 0,
                count: 0,
            },
            Kind::Log => Self::Log {
                window: plan.window,
                group: plan.group,
                groups: VecDeque::new(),
                count: 0,
                last: 0,
            },
            Kind::Bucket => Self::Bucket {
                window: plan.window,
                level: plan.capacity(share),
                last: None,
            },
        }
    }

    /// Begins the window of `now`, forgets what has left a log, or refills a bucket at the rate of `share`. Returns the
    /// window that ended, with its hits.
    pub(super) fn roll(&mut self, now: Timestamp, share: u64, capacity: u64) -> Option<(u64, u64)> {
        let now = now.as_micros();
        match self {
            Self::Windows {
                length,
                window,
                count,
            } => {
                let current = now / *length;
                if current <= *window {
                    return None;
                }
                let ended = (*window, *count);
                (*window, *count) = (current, 0);
                Some(ended)
            }
            Self::Log {
                window,
                groups,
                count,
                last,
                ..
            } => {
                *last = now.max(*last);
                while let Some((first, hits)) = groups.front() {
                    if *first + *window > *last {
                        break;
                    }
                    *count -= hits;
                    groups.pop_front();
                }
                None
            }
            Self::Bucket {
                window,
                level,
                last,
            } => {
                let since = *last.get_or_insert(now);
                if now > since {
                    let gained =
                        u128::from(now - since) * u128::from(share * HIT) / u128::from(*window);
                    let gained = u64::try_from(gained).unwrap_or(u64::MAX);
                    *level = level.saturating_add(gained).min(capacity);
                    *last = Some(now);
                }
                None
            }
        }
    }

    /// The hits that fit now, under that share.
    pub(super) const fn room(&self, share: u64) -> u64 {
        match self {
            Self::Windows { count, .. } | Self::Log { count, .. } => share.saturating_sub(*count),
            Self::Bucket { level, .. } => *level / HIT,
        }
    }

    /// Counts hits.
    pub(super) fn charge(&mut self, hits: u64) {
        match self {
            Self::Windows { count, .. } => *count += hits,
            Self::Log {
                group,
                groups,
                count,
                last,
                ..
            } => {
                *count += hits;
                let mut left = hits;
                while left > 0 {
                    let free = groups.back().map_or(0, |(_, hits)| *group - *hits);
                    if free == 0 {
                        groups.push_back((*last, 0));
                    }
                    if let Some((_, hits)) = groups.back_mut() {
                        let more = left.min(*group - *hits);
                        *hits += more;
                        left -= more;
                    }
                }
            }
            Self::Bucket { level, .. } => *level -= hits * HIT,
        }
    }

    /// The window that is counted; 0 for other counters.
    pub(super) const fn window(&self) -> u64 {
        match self {
            Self::Windows { window, .. } => *window,
            Self::Log { .. } | Self::Bucket { .. } => 0,
        }
    }

    /// The hits counted; 0 for a bucket.
    pub(super) const fn count(&self) -> u64 {
        match self {
            Self::Windows { count, .. } | Self::Log { count, .. } => *count,
            Self::Bucket { .. } => 0,
        }
    }

    /// The level of a bucket; 0 for other counters.
    pub(super) const fn level(&self) -> u64 {
        match self {
            Self::Bucket { level, .. } => *level,
            Self::Windows { .. } | Self::Log { .. } => 0,
        }
    }

    /// Sets the level of a bucket.
    pub(super) const fn set_level(&mut self, to: u64) {
        if let Self::Bucket { level, .. } = self {
            *level = to;
        }
    }
}
