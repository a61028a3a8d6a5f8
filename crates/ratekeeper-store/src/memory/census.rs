//! Estimates during a sweep which part of each rule's maximum of counters is taken by counters
//! that deny.

use std::ops::Range;

use super::shard::Shard;
use super::stats::Refusing;
use super::table::SLOTS;
use crate::RuleSlot;

/// The counts of one sweep.
#[derive(Debug, Default)]
pub(super) struct Census {
    rules: Vec<Seen>,
    /// Counts by rule of the buckets that are visited now.
    slice: Vec<Slice>,
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
        self.slice.clear();
        self.slice.resize(shard.rules.len(), Slice::default());
        for bucket in buckets {
            for slot in 0..SLOTS {
                let Some(place) = shard.table.used_at(bucket, slot) else {
                    continue;
                };
                let meta = shard.table.meta(place);
                // The rule of a counter from an earlier version's file is unknown until its first request.
                if let Some(slice) = self.slice.get_mut(usize::from(meta.rule().0)) {
                    slice.held += 1;
                    slice.refusing += u64::from(meta.share() == 0);
                }
            }
        }
        for at in 0..self.slice.len() {
            let (Slice { held, refusing }, Ok(rule)) = (self.slice[at], u16::try_from(at)) else {
                continue;
            };
            if held > 0 {
                let permille = shard.permille_of(RuleSlot(rule));
                self.add(RuleSlot(rule), held, refusing * permille);
            }
        }
    }

    fn add(&mut self, rule: RuleSlot, held: u64, filled: u64) {
        let at = usize::from(rule.0);
        if self.rules.len() <= at {
            self.rules.resize(at + 1, Seen::default());
        }
        self.rules[at].held += held;
        self.rules[at].filled += filled;
    }

    /// The rule with the largest part of its maximum taken.
    pub(super) fn fullest(&self) -> Option<Refusing> {
        let rules = (0..).map(RuleSlot).zip(&self.rules);
        let seen = rules.filter(|(_, seen)| seen.filled > 0);
        let filled = seen.map(|(rule, seen)| Refusing {
            rule,
            permille: u16::try_from(seen.filled / seen.held).unwrap_or(u16::MAX),
        });
        filled.max_by_key(|refusing| refusing.permille)
    }
}
