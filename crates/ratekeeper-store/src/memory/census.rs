//! Estimates during a sweep which part of each rule's maximum of counters is taken by counters
//! that deny.

use std::ops::Range;

use super::by_rule::ByRule;
use super::shard::{NO_RULE, Shard};
use super::stats::Refusing;
use super::table::SLOTS;

/// The counts of one sweep.
#[derive(Debug, Default)]
pub(super) struct Census {
    rules: ByRule<Seen>,
    /// Counts of the buckets that are visited now.
    slice: ByRule<Slice>,
}

/// Counters of one rule in a few buckets.
#[derive(Clone, Copy, Debug, Default)]
struct Slice {
    held: u64,
    refusing: u64,
}

/// The sum for one rule.
#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    /// Visited counters.
    held: u64,
    /// Denying counters, each weighted with the part of its maximum, in thousandths, that the rule
    /// holds in the counter's shard.
    filled: u64,
}

impl Census {
    /// Counts in these buckets of a shard, after their expired counters have been removed.
    pub(super) fn look(&mut self, shard: &Shard, buckets: Range<usize>) {
        for bucket in buckets {
            for slot in 0..SLOTS {
                let Some(place) = shard.table.used_at(bucket, slot) else {
                    continue;
                };
                let meta = shard.table.meta(place);
                // The rule of a counter from an earlier version's file is unknown until its first request.
                if meta.rule() != NO_RULE {
                    let slice = self.slice.get_mut(meta.rule());
                    slice.held += 1;
                    slice.refusing += u64::from(meta.share() == 0);
                }
            }
        }
        for (rule, Slice { held, refusing }) in self.slice.take() {
            if held > 0 {
                let seen = self.rules.get_mut(rule);
                seen.held += held;
                seen.filled += refusing * shard.permille_of(rule);
            }
        }
    }

    /// The rule with the largest part of its maximum taken.
    pub(super) fn fullest(&self) -> Option<Refusing> {
        let seen = self.rules.iter().filter(|(_, seen)| seen.filled > 0);
        let filled = seen.map(|(rule, seen)| Refusing {
            rule,
            permille: u16::try_from(seen.filled / seen.held).unwrap_or(u16::MAX),
        });
        filled.max_by_key(|refusing| refusing.permille)
    }
}
