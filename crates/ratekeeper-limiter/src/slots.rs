//! Slots: the numbers by which a store in memory knows the rules of its counters.

use std::collections::HashMap;
use std::hash::Hasher;

use ratekeeper_rules::RuleSet;
use ratekeeper_store::RuleSlot;
use siphasher::sip::SipHasher13;

/// The slot that all limits that come with requests share: together they are bounded like one rule.
pub(crate) const OVERRIDES: RuleSlot = RuleSlot(u16::MAX - 1);

/// The slots of rules: of those in force, and of those that are gone, whose counters may still be in the store.
///
/// A rule that comes back finds its counters, and is bounded by what it holds of the memory with them. So a limiter that goes on
/// with saved counters needs their slots too.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct RuleSlots {
    /// By the hash of the rule's id.
    rules: HashMap<u64, RuleSlot>,
}

/// The bytes of one rule: its slot, and the hash of its id.
const RULE_BYTES: usize = 10;

impl RuleSlots {
    /// Returns the slots of `rules`: those that they had before, and free numbers for the others. The number of a rule that is
    /// gone is given out when all others are, since its counters would fill the share of the next. Beyond 65,534 rules the last
    /// number is shared: those rules are then bounded together.
    pub(crate) fn of(rules: &RuleSet, before: &Self) -> Self {
        let ids = rules.rules().iter().map(|rule| &*rule.id);
        before.with(ids)
    }

    fn with<'a>(&self, ids: impl Iterator<Item = &'a str>) -> Self {
        let mut slots = HashMap::new();
        let mut added = Vec::new();
        for id in ids.map(hash) {
            match self.rules.get(&id) {
                Some(slot) => {
                    slots.insert(id, *slot);
                }
                None => added.push(id),
            }
        }
        let mut gone: HashMap<RuleSlot, u64> = HashMap::new();
        let mut taken = vec![false; usize::from(OVERRIDES.0)];
        for slot in slots.values() {
            taken[usize::from(slot.0)] = true;
        }
        for (id, slot) in &self.rules {
            if !taken[usize::from(slot.0)] {
                gone.insert(*slot, *id);
            }
        }
        let is_free = |slot: &RuleSlot| !taken[usize::from(slot.0)];
        let numbers = || (0..OVERRIDES.0).map(RuleSlot).filter(is_free);
        let (never_used, used) = numbers().partition::<Vec<_>, _>(|slot| !gone.contains_key(slot));
        let mut numbers = never_used.into_iter().chain(used);
        for id in added {
            slots.entry(id).or_insert_with(|| {
                let slot = numbers.next().unwrap_or(RuleSlot(OVERRIDES.0 - 1));
                gone.remove(&slot);
                slot
            });
        }
        slots.extend(gone.into_iter().map(|(slot, id)| (id, slot)));
        Self { rules: slots }
    }

    /// Returns the slot of the rule with this id.
    pub(crate) fn get(&self, id: &str) -> Option<RuleSlot> {
        self.rules.get(&hash(id)).copied()
    }

    /// The slots as bytes: at most ten for each of 65,534 rules, and four.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let rules = self.rules.len().min(usize::from(OVERRIDES.0));
        let mut bytes = Vec::with_capacity(4 + rules * RULE_BYTES);
        bytes.extend_from_slice(&u32::try_from(rules).unwrap_or_default().to_le_bytes());
        for (id, slot) in self.rules.iter().take(rules) {
            bytes.extend_from_slice(&slot.0.to_le_bytes());
            bytes.extend_from_slice(&id.to_le_bytes());
        }
        bytes
    }

    /// Returns the slots that [`Self::to_bytes`] wrote; [`None`] for other bytes.
    #[must_use]
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (count, rules) = bytes.split_first_chunk()?;
        let (rules, rest) = rules.as_chunks::<RULE_BYTES>();
        let is_whole = usize::try_from(u32::from_le_bytes(*count)) == Ok(rules.len());
        let rules = rules.iter().map(rule).collect::<Option<_>>()?;
        (is_whole && rest.is_empty()).then_some(Self { rules })
    }
}

/// The hash of a rule's id, and its slot.
fn rule(bytes: &[u8; RULE_BYTES]) -> Option<(u64, RuleSlot)> {
    let (slot, id) = bytes.split_first_chunk()?;
    let slot = u16::from_le_bytes(*slot);
    let id = u64::from_le_bytes(*id.first_chunk()?);
    (slot < OVERRIDES.0).then_some((id, RuleSlot(slot)))
}

/// Operators choose ids, so the hash needs no key.
fn hash(id: &str) -> u64 {
    let mut hasher = SipHasher13::new();
    hasher.write(id.as_bytes());
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(slots: &RuleSlots, ids: &[&str]) -> Vec<Option<u16>> {
        ids.iter().map(|id| slots.get(id).map(|it| it.0)).collect()
    }

    #[test]
    fn a_rule_keeps_its_slot_and_one_that_comes_back_has_it_again() {
        let first = RuleSlots::default().with(["a", "b", "a"].into_iter());
        assert_eq!(numbers(&first, &["a", "b"]), [Some(0), Some(1)]);
        let without = first.with(["c", "b"].into_iter());
        assert_eq!(numbers(&without, &["c", "b"]), [Some(2), Some(1)]);
        let again = without.with(["a", "b"].into_iter());
        assert_eq!(
            numbers(&again, &["a", "b", "c"]),
            [Some(0), Some(1), Some(2)]
        );
    }

    #[test]
    fn slots_of_rules_that_are_gone_are_given_out_last() {
        let ids: Vec<String> = (0..OVERRIDES.0).map(|id| id.to_string()).collect();
        let full = RuleSlots::default().with(ids.iter().map(String::as_str));
        let [gone, kept] = [&ids[..10], &ids[10..]];
        let kept = || kept.iter().map(String::as_str);
        let next = full.with(kept().chain(["new"]));
        assert_eq!(
            numbers(&next, &["new", &gone[0], &gone[1]]),
            [Some(0), None, Some(1)]
        );
        let added: Vec<String> = (0..12).map(|id| format!("added {id}")).collect();
        let shared = full.with(kept().chain(added.iter().map(String::as_str)));
        let last = added[9..]
            .iter()
            .map(|id| shared.get(id).expect("it has one").0);
        assert_eq!(
            last.collect::<Vec<_>>(),
            [9, OVERRIDES.0 - 1, OVERRIDES.0 - 1]
        );
        assert!(shared.to_bytes().len() <= 4 + RULE_BYTES * usize::from(OVERRIDES.0));
    }

    #[test]
    fn saved_slots_are_read_again() {
        let saved = RuleSlots::default().with(["a", "b"].into_iter());
        let bytes = saved.to_bytes();
        assert_eq!(RuleSlots::from_bytes(&bytes), Some(saved));
        assert_eq!(RuleSlots::from_bytes(&[0; 4]), Some(RuleSlots::default()));
        for damaged in [&bytes[1..], &bytes[..14], &[], &[1, 0, 0, 0], &[255; 14]] {
            assert_eq!(RuleSlots::from_bytes(damaged), None, "{damaged:?}");
        }
    }
}
