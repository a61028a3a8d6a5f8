//! Slots: the numbers by which a store in memory knows the rules of its counters.

use std::collections::{HashMap, HashSet};
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
#[derive(Clone, Debug, Default)]
pub struct RuleSlots {
    /// By the hash of the rule's id. No other rule has the number of one that is gone.
    rules: HashMap<u64, Known>,
    /// The numbers below have been given out.
    used: u16,
    /// The times that rules were put in force.
    turn: u32,
}

/// A rule that has a slot.
#[derive(Clone, Copy, Debug)]
struct Known {
    slot: RuleSlot,
    /// The turn at which it went; [`None`] while it is in force.
    gone: Option<u32>,
}

/// The number that rules share once all others are theirs.
const LAST: RuleSlot = RuleSlot(OVERRIDES.0 - 1);

/// The bytes of one rule: its slot, and the hash of its id.
const RULE_BYTES: usize = 10;

impl RuleSlots {
    /// Returns the slots of `rules`: those that they had before, and free numbers for the others. The number of a rule that is
    /// gone is given out when all others are, since its counters would fill the share of the next; that of the rule which has been
    /// gone for longest comes first. Beyond 65,534 rules the last number is shared: those rules are then bounded together.
    pub(crate) fn of(rules: &RuleSet, before: &Self) -> Self {
        let ids = rules.rules().iter().map(|rule| &*rule.id);
        before.with(ids)
    }

    fn with<'a>(&self, ids: impl Iterator<Item = &'a str>) -> Self {
        let ids: Vec<u64> = ids.map(hash).collect();
        let in_force: HashSet<u64> = ids.iter().copied().collect();
        let mut after = self.clone();
        after.turn = self.turn.saturating_add(1);
        for (id, rule) in &mut after.rules {
            rule.gone = match in_force.contains(id) {
                true => None,
                false => rule.gone.or(Some(after.turn)),
            };
        }
        after.add(ids.into_iter().filter(|id| !self.rules.contains_key(id)));
        if after.rules.len() > usize::from(OVERRIDES.0) {
            after.forget_shared();
        }
        after
    }

    /// Gives each of those rules a number.
    fn add(&mut self, ids: impl Iterator<Item = u64>) {
        let mut gone = None;
        for id in ids {
            if self.rules.contains_key(&id) {
                continue;
            }
            let slot = match self.used < OVERRIDES.0 {
                true => {
                    self.used += 1;
                    RuleSlot(self.used - 1)
                }
                false => {
                    let gone = gone.get_or_insert_with(|| self.longest_gone().into_iter());
                    let former = gone.next().and_then(|id| self.rules.remove(&id));
                    former.map_or(LAST, |former| former.slot)
                }
            };
            self.rules.insert(id, Known { slot, gone: None });
        }
    }

    /// The rules that are gone, the one that went first before all others.
    fn longest_gone(&self) -> Vec<u64> {
        let gone = self.rules.iter();
        let gone = gone.filter_map(|(id, rule)| Some((rule.gone?, rule.slot, *id)));
        let mut gone: Vec<_> = gone.collect();
        gone.sort_unstable();
        gone.into_iter().map(|(_, _, id)| id).collect()
    }

    /// Forgets the rules that are gone and shared the number of another.
    fn forget_shared(&mut self) {
        let in_force = self.rules.values().filter(|rule| rule.gone.is_none());
        let mut taken: HashSet<RuleSlot> = in_force.map(|rule| rule.slot).collect();
        self.rules
            .retain(|_, rule| rule.gone.is_none() || taken.insert(rule.slot));
    }

    /// Returns the slot of the rule with this id.
    pub(crate) fn get(&self, id: &str) -> Option<RuleSlot> {
        self.rules.get(&hash(id)).map(|rule| rule.slot)
    }

    /// The slots as bytes: at most ten for each of 65,534 rules, and four. If there are more, those that have been gone for
    /// longest are left out first. The rules that are gone come first, in the order in which they went.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let most = usize::from(OVERRIDES.0);
        let in_force = self.rules.iter().filter(|(_, rule)| rule.gone.is_none());
        let in_force: Vec<u64> = in_force.map(|(id, _)| *id).take(most).collect();
        let mut ids = self.longest_gone();
        ids.drain(..(ids.len() + in_force.len()).saturating_sub(most));
        ids.extend(in_force);
        let mut bytes = Vec::with_capacity(4 + ids.len() * RULE_BYTES);
        bytes.extend_from_slice(&u32::try_from(ids.len()).unwrap_or_default().to_le_bytes());
        for id in ids {
            bytes.extend_from_slice(&self.rules[&id].slot.0.to_le_bytes());
            bytes.extend_from_slice(&id.to_le_bytes());
        }
        bytes
    }

    /// Returns the slots that [`Self::to_bytes`] wrote; [`None`] for other bytes. None of their rules is in force.
    #[must_use]
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (count, rules) = bytes.split_first_chunk()?;
        let (rules, rest) = rules.as_chunks::<RULE_BYTES>();
        let turn = u32::from_le_bytes(*count);
        let is_whole = usize::try_from(turn) == Ok(rules.len());
        let rules = (0..).zip(rules).map(|(turn, bytes)| rule(bytes, turn));
        let rules: HashMap<u64, Known> = rules.collect::<Option<_>>()?;
        let used = rules.values().map(|rule| rule.slot.0 + 1).max();
        let used = used.unwrap_or_default();
        (is_whole && rest.is_empty()).then_some(Self { rules, used, turn })
    }
}

/// The hash of the id of a rule that went at that turn, and what is known of it.
fn rule(bytes: &[u8; RULE_BYTES], gone: u32) -> Option<(u64, Known)> {
    let (slot, id) = bytes.split_first_chunk()?;
    let slot = RuleSlot(u16::from_le_bytes(*slot));
    let id = u64::from_le_bytes(*id.first_chunk()?);
    let gone = Some(gone);
    (slot.0 < OVERRIDES.0).then_some((id, Known { slot, gone }))
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

    /// The counters of the one that went last are still there.
    #[test]
    fn the_number_of_the_rule_that_is_gone_for_longest_is_given_out_first() {
        let ids: Vec<String> = (0..OVERRIDES.0).map(|id| id.to_string()).collect();
        let without = |count: usize| ids[..ids.len() - count].iter().map(String::as_str);
        let full = RuleSlots::default().with(without(0));
        let went = full.with(without(1)).with(without(2)).with(without(3));
        let next = went.with(without(4).chain(["new"]));
        assert_eq!(numbers(&next, &["new"]), [Some(OVERRIDES.0 - 1)]);
        let restarted = RuleSlots::from_bytes(&went.to_bytes()).expect("they are whole");
        let next = restarted.with(without(4).chain(["new", "newer"]));
        let last = OVERRIDES.0 - 1;
        assert_eq!(
            numbers(&next, &["new", "newer"]),
            [Some(last), Some(last - 1)]
        );
    }

    #[test]
    fn rules_in_force_are_saved_before_those_that_are_gone() {
        let ids: Vec<String> = (0..u32::from(OVERRIDES.0) + 12)
            .map(|id| id.to_string())
            .collect();
        let ids: Vec<&str> = ids.iter().map(String::as_str).collect();
        let shared = RuleSlots::default().with(ids.iter().copied());
        let (gone, in_force) = ids.split_at(20);
        let saved = shared.with(in_force.iter().copied()).to_bytes();
        let loaded = RuleSlots::from_bytes(&saved).expect("they are whole");
        let found = |ids: &[&str]| ids.iter().filter(|id| loaded.get(id).is_some()).count();
        assert_eq!(found(in_force), in_force.len());
        assert_eq!(
            (found(&gone[..12]), found(&gone[12..])),
            (0, 8),
            "of the last"
        );
    }

    #[test]
    fn saved_slots_are_read_again() {
        let saved = RuleSlots::default().with(["a", "b"].into_iter());
        let bytes = saved.to_bytes();
        let loaded = RuleSlots::from_bytes(&bytes).expect("they are whole");
        let after = loaded.with(["new", "b"].into_iter());
        assert_eq!(
            numbers(&after, &["a", "b", "new"]),
            [Some(0), Some(1), Some(2)]
        );
        assert!(RuleSlots::from_bytes(&[0; 4]).is_some_and(|it| it.rules.is_empty()));
        for damaged in [&bytes[1..], &bytes[..14], &[], &[1, 0, 0, 0], &[255; 14]] {
            assert!(RuleSlots::from_bytes(damaged).is_none(), "{damaged:?}");
        }
    }
}
