//! Slots: the numbers by which a store in memory knows the rules of its counters.

use std::collections::HashMap;
use std::hash::Hasher;
use std::sync::Arc;

use ratekeeper_rules::RuleSet;
use ratekeeper_store::{HashKey, RuleSlot};
use siphasher::sip::SipHasher13;

use crate::RuleStats;

/// The slot that all limits that come with requests share: together they are bounded like one rule.
pub(crate) const OVERRIDES: RuleSlot = RuleSlot(u16::MAX - 1);

/// The rules' slots when counters were saved. A limiter that goes on with those counters needs them: each rule
/// is bounded by what it holds of the memory.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct SavedSlots {
    /// By the hash of the rule's id.
    rules: HashMap<u64, RuleSlot>,
    /// The slot from which on further rules get theirs.
    next: RuleSlot,
}

/// The bytes of one rule: its slot, and the hash of its id.
const RULE_BYTES: usize = 10;

impl SavedSlots {
    /// Returns the slots of rules with these ids. Of rules with one slot, the first is kept.
    pub(crate) fn of<'a>(
        rules: impl Iterator<Item = (&'a str, RuleSlot)>,
        next: RuleSlot,
        key: HashKey,
    ) -> Self {
        let mut by_slot: HashMap<RuleSlot, u64> = HashMap::new();
        for (id, slot) in rules {
            by_slot.entry(slot).or_insert_with(|| hash(key, id));
        }
        let rules = by_slot.into_iter().map(|(slot, id)| (id, slot)).collect();
        Self { rules, next }
    }

    pub(crate) const fn next(&self) -> RuleSlot {
        self.next
    }

    /// Returns the slot of the rule with this id.
    pub(crate) fn get(&self, key: HashKey, id: &str) -> Option<RuleSlot> {
        match self.rules.is_empty() {
            true => None,
            false => self.rules.get(&hash(key, id)).copied(),
        }
    }

    /// The slots as bytes: at most ten for each of 65,535 rules.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = self.next.0.to_le_bytes().to_vec();
        for (id, slot) in &self.rules {
            bytes.extend_from_slice(&slot.0.to_le_bytes());
            bytes.extend_from_slice(&id.to_le_bytes());
        }
        bytes
    }

    /// Returns the slots that [`Self::to_bytes`] wrote; [`None`] for other bytes.
    #[must_use]
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (next, rules) = bytes.split_first_chunk()?;
        let (rules, rest) = rules.as_chunks::<RULE_BYTES>();
        let rules: Option<_> = rules.iter().map(rule).collect();
        let next = Some(RuleSlot(u16::from_le_bytes(*next))).filter(|next| next.0 < OVERRIDES.0)?;
        rest.is_empty().then_some(Self {
            rules: rules?,
            next,
        })
    }
}

/// The hash of a rule's id, and its slot.
fn rule(bytes: &[u8; RULE_BYTES]) -> Option<(u64, RuleSlot)> {
    let (slot, id) = bytes.split_first_chunk()?;
    let slot = u16::from_le_bytes(*slot);
    let id = u64::from_le_bytes(*id.first_chunk()?);
    (slot < OVERRIDES.0).then_some((id, RuleSlot(slot)))
}

fn hash(key: HashKey, id: &str) -> u64 {
    let mut hasher = SipHasher13::new_with_key(&key.to_bytes());
    hasher.write(id.as_bytes());
    hasher.finish()
}

/// Gives out the numbers that no kept rule has, nor one that was saved. Beyond 65,534 rules numbers are shared:
/// those rules are then bounded together.
///
/// A number that is free again comes last: the store still has counters of the rule that had it, which would fill the share
/// of the next.
pub(crate) struct Slots {
    taken: Vec<bool>,
    next: u16,
}

impl Slots {
    /// Begins at `next`, where the rules before ended.
    pub(crate) fn without(
        rules: &RuleSet,
        kept: &HashMap<Arc<str>, (Arc<RuleStats>, RuleSlot)>,
        saved: &SavedSlots,
        next: RuleSlot,
    ) -> Self {
        let mut taken = vec![false; usize::from(OVERRIDES.0)];
        for slot in saved.rules.values() {
            taken[usize::from(slot.0)] = true;
        }
        for rule in rules.rules() {
            if let Some((_, slot)) = kept.get(&*rule.id) {
                taken[usize::from(slot.0)] = true;
            }
        }
        Self {
            taken,
            next: next.0,
        }
    }

    /// The number to begin with when rules are compiled the next time.
    pub(crate) const fn cursor(&self) -> RuleSlot {
        RuleSlot(self.next)
    }

    pub(crate) fn next(&mut self) -> RuleSlot {
        let mut slot = self.next;
        for _ in 0..OVERRIDES.0 {
            slot = self.next;
            self.next = (self.next + 1) % OVERRIDES.0;
            if !std::mem::replace(&mut self.taken[usize::from(slot)], true) {
                break;
            }
        }
        RuleSlot(slot)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_given_out_once_each_and_then_again_in_turn() {
        let mut slots = Slots {
            taken: vec![false; usize::from(OVERRIDES.0)],
            next: 0,
        };
        slots.taken[1] = true;
        let given: Vec<_> = (0..3).map(|_| slots.next().0).collect();
        assert_eq!(given, [0, 2, 3]);
        slots.taken.fill(true);
        slots.next = OVERRIDES.0 - 1;
        let given: Vec<_> = (0..3).map(|_| slots.next().0).collect();
        assert_eq!(given, [OVERRIDES.0 - 2; 3]);
    }

    #[test]
    fn saved_slots_are_read_again() {
        let key = HashKey::from_bytes([7; 16]);
        let rules = [("a", 3), ("b", 5), ("shares it", 3)];
        let rules = rules.into_iter().map(|(id, slot)| (id, RuleSlot(slot)));
        let saved = SavedSlots::of(rules, RuleSlot(6), key);
        let bytes = saved.to_bytes();
        let read = SavedSlots::from_bytes(&bytes).expect("it was just written");
        assert_eq!(read, saved);
        let slots = ["a", "b", "shares it", "c"].map(|id| read.get(key, id));
        assert_eq!(slots, [Some(RuleSlot(3)), Some(RuleSlot(5)), None, None]);
        assert_eq!(SavedSlots::from_bytes(&bytes[1..]), None);
        assert_eq!(SavedSlots::from_bytes(&[255; 2]), None);
        assert_eq!(SavedSlots::from_bytes(&[255; 12]), None);
    }
}
