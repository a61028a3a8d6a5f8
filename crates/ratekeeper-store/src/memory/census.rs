//! Counts, while a sweep passes, how far rules have filled what they may hold with counters that
//! refuse.

use std::ops::Range;

use super::shard::Shard;
use super::stats::Refusing;
use super::table::SLOTS;
use crate::RuleSlot;

/// What one sweep has seen.
#[derive(Debug, Default)]
pub(super) struct Census {
    rules: Vec<Seen>,
    /// Of the buckets at hand.
    slice: Vec<Slice>,
}

/// Counters of one rule in a few buckets.
#[derive(Clone, Copy, Debug, Default)]
struct Slice {
    held: u64,
    refusing: u64,
}

/// Of one rule.
#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    /// Counters that were looked at.
    held: u64,
    /// Of those, in thousandths of a counter, what they stand for of what the rule may hold.
    filled: u64,
}

impl Census {
    /// Looks at those buckets of a shard, whose expired counters are gone.
    pub(super) fn look(&mut self, shard: &Shard, buckets: Range<usize>) {
        self.slice.clear();
        self.slice.resize(shard.rules.len(), Slice::default());
        for bucket in buckets {
            for slot in 0..SLOTS {
                let Some(place) = shard.table.used_at(bucket, slot) else {
                    continue;
                };
                let meta = shard.table.meta(place);
                // Of a counter that was loaded and not asked for since, nobody knows the rule.
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

    /// The rule that has come furthest.
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
